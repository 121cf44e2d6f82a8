/* Ranks that use a library which supports one caller in a process: first in two threads at once, then in ranks that are processes, then in one
 * rank of each process of a mixed team. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#define DRAWS 40
#define PROCESSES 2
#define THREADS 2

static void (*library_open)(unsigned long);
static unsigned long (*library_draw)(void);
static trimtab_team team;

/* The library's answer to a single caller. */
static void expected(unsigned long seed, uint64_t draws[DRAWS]) {
    unsigned long state = seed;
    for (int i = 0; i < DRAWS; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        draws[i] = state >> 33 ^ (unsigned long)(i + 1);
    }
}

/* Draws while all others draw too, step by step; returns whether the result was right. */
static int draw(trimtab_rank rank, uint32_t me, uint64_t draws[DRAWS]) {
    uint64_t right[DRAWS];
    expected(me + 1, right);
    library_open(me + 1);
    for (int i = 0; i < DRAWS; i++) {
        OK(trimtab_barrier(rank));
        /* One after the other, so that the result is deterministic. */
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (turn == me % 2) draws[i] = library_draw();
            OK(trimtab_barrier(rank));
        }
    }
    return memcmp(draws, right, sizeof right) == 0;
}

static void *thread(void *number) {
    trimtab_rank rank;
    uint64_t draws[DRAWS];
    OK(trimtab_team_join(team, (intptr_t)number, &rank));
    IS(!draw(rank, (uint32_t)(intptr_t)number, draws));
    OK(trimtab_rank_leave(rank));
    return NULL;
}

static void process(uint32_t me) {
    trimtab_rank rank;
    uint64_t draws[DRAWS], all[2 * DRAWS], right[2 * DRAWS];
    OK(trimtab_team_join(team, me, &rank));
    IS(draw(rank, me, draws));
    OK(trimtab_allgather(rank, draws, all, DRAWS, TRIMTAB_U64, TRIMTAB_MINE));
    expected(1, right);
    expected(2, right + DRAWS);
    IS(memcmp(all, right, sizeof right) == 0);
    OK(trimtab_rank_leave(rank));
}

/* One thread of each process calls, and shares the result with its process; all ranks combine all results. */
static uint32_t of_process;
static void *mixed(void *number) {
    uint32_t me = of_process * THREADS + (uint32_t)(intptr_t)number, here;
    trimtab_rank rank, part, callers;
    uint64_t draws[DRAWS] = {0}, right[DRAWS], sum[DRAWS];
    OK(trimtab_team_join(team, me, &rank));
    OK(trimtab_split(rank, of_process, (int32_t)me, 4096, &part));
    OK(trimtab_rank_number(part, &here));
    OK(trimtab_split(rank, here == 0 ? 0 : -1, (int32_t)me, 4096, &callers));
    if (here == 0) IS(draw(callers, of_process, draws));
    OK(trimtab_broadcast(part, draws, DRAWS, TRIMTAB_U64, 0, TRIMTAB_MINE));
    expected(of_process + 1, right);
    IS(memcmp(draws, right, sizeof right) == 0);
    OK(trimtab_allreduce(rank, draws, sum, DRAWS, TRIMTAB_U64, TRIMTAB_SUM, TRIMTAB_MINE));
    for (uint32_t p = 0; p < PROCESSES; p++) {
        expected(p + 1, right);
        for (int i = 0; i < DRAWS; i++) sum[i] -= right[i] * THREADS;
    }
    for (int i = 0; i < DRAWS; i++) IS(sum[i] == 0);
    OK(trimtab_barrier(rank));
    return NULL;
}

static void make(uint32_t ranks) {
    struct trimtab_team_options options;
    OK(trimtab_team_options_init(&options, ranks));
    OK(trimtab_team_new(&options, &team));
}

static void all_threads(void *(*work)(void *), int count) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < count; i++) IS(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void all_processes(void (*work)(uint32_t)) {
    pid_t children[PROCESSES];
    for (uint32_t p = 0; p < PROCESSES; p++)
        if ((children[p] = fork()) == 0) {
            work(p);
            _exit(0);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        IS(waitpid(children[p], &status, 0) == children[p] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    OK(trimtab_team_free(team));
}

static void mixed_process(uint32_t number) {
    of_process = number;
    all_threads(mixed, THREADS);
}

int main(int count, char **words) {
    IS(count == 2);
    void *library = dlopen(words[1], RTLD_NOW);
    IS(library);
    *(void **)&library_open = dlsym(library, "single_open");
    *(void **)&library_draw = dlsym(library, "single_draw");
    IS(library_open && library_draw);
    make(THREADS);
    all_threads(thread, THREADS);
    OK(trimtab_team_free(team));
    make(PROCESSES);
    all_processes(process);
    make(PROCESSES * THREADS);
    all_processes(mixed_process);
    return 0;
}
