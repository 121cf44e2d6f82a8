// Ranks of a launcher, by the header alone. Each word of the command line is a step:
//   one          reserves for one rank and says the line about it, or the code and the text of the error
//   two          the same for two ranks
//   friends      the same for one rank, and shares with holders whose labels begin with "launcher"
//   enter        a forked child carries out the order of rank 0, and says its variables and the number of its CPUs
//   order        says the order of rank 0, or "empty"
//   release      releases the cores and says so
//   list         says how many holds the library lists
//   settings     says how many of two settings are accepted
//   bad          calls with invalid arguments, and says how many are refused as such
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <trimtab/trimtab.h>

static trimtab_ranks *held;
static const char *const environment[] = {"OMP_NUM_THREADS=7", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4", NULL};
static const char *const command[] = {"/bin/sh", NULL};

static int reserve(uint32_t number, const char *friends, trimtab_ranks **ranks) {
    struct trimtab_cores_wanted cores = {.size = sizeof cores, .label = "launcher 7: sh"};
    struct trimtab_ranks_wanted wanted = {.size = sizeof wanted, .cores = &cores, .ranks = number, .environment = environment,
                                          .command = command, .shared_with = friends};
    char *error = NULL, *line = NULL, *warnings = NULL;
    int code = trimtab_ranks_reserve(&wanted, ranks, &error);
    if (code) {
        printf("error %d: %s\n", code, error);
        trimtab_cores_free(error);
        return code;
    }
    code = trimtab_ranks_tell(*ranks, &line, &warnings, NULL);
    printf("%s\n", code ? "no line" : line);
    trimtab_cores_free(line);
    trimtab_cores_free(warnings);
    return code;
}

static int show(void *data, const char *name, const char *value) {
    (void)data;
    if (!strcmp(name, "OMP_NUM_THREADS") || !strcmp(name, "TRIMTAB_HOLD")) printf("%s=%s\n", name, value ? value : "removed");
    return 0;
}

static int refuse(void *data, const char *name, const char *value) {
    (void)data, (void)name, (void)value;
    return 1;
}

static void enter(const char *order) {
    cpu_set_t set;
    char *missing = NULL, *error = NULL;
    if (trimtab_rank_enter(order, show, NULL, &missing, &error)) {
        printf("not entered: %s\n", error);
        fflush(stdout);
        return;
    }
    sched_getaffinity(0, sizeof set, &set);
    printf("CPUs: %d\n", CPU_COUNT(&set));
    trimtab_cores_free(missing);
    if (trimtab_rank_enter(order, refuse, NULL, &missing, &error) == TRIMTAB_CORES_SYSTEM) printf("refused: %s\n", error);
    trimtab_cores_free(error);
    fflush(stdout);
}

static int bad(void) {
    struct trimtab_cores_wanted cores = {.size = sizeof cores};
    struct trimtab_ranks_wanted good = {.size = sizeof good, .cores = &cores, .ranks = 1}, one;
    trimtab_ranks *ranks;
    char *text;
    int refused = 0;
#define REFUSED(call) refused += (call) == TRIMTAB_CORES_ARGUMENT
    REFUSED(trimtab_ranks_reserve(NULL, &ranks, NULL));
    REFUSED(trimtab_ranks_reserve(&good, NULL, NULL));
    one = good, one.size = 8;
    REFUSED(trimtab_ranks_reserve(&one, &ranks, NULL));
    one = good, one.cores = NULL;
    REFUSED(trimtab_ranks_reserve(&one, &ranks, NULL));
    one = good, one.ranks = 0;
    REFUSED(trimtab_ranks_reserve(&one, &ranks, NULL));
    one = good, one.ranks = 1u << 31;
    REFUSED(trimtab_ranks_reserve(&one, &ranks, NULL));
    one = good, one.shared_with = "\xff";
    REFUSED(trimtab_ranks_reserve(&one, &ranks, NULL));
    REFUSED(trimtab_ranks_order(NULL, 0, &text, NULL));
    REFUSED(trimtab_ranks_tell(NULL, &text, &text, NULL));
    REFUSED(trimtab_rank_enter(NULL, show, NULL, &text, NULL));
    REFUSED(trimtab_rank_enter("{}", show, NULL, &text, NULL));
    REFUSED(trimtab_rank_enter("x", show, NULL, &text, NULL));
    REFUSED(trimtab_cores_check_settings("colour=red", NULL));
    trimtab_ranks_release(NULL);
    return refused;
}

int main(int count, char **word) {
    for (int at = 1; at < count; at++) {
        const char *step = word[at];
        char *text = NULL;
        trimtab_ranks *more = NULL;
        if (!strcmp(step, "one") || !strcmp(step, "two")) {
            reserve(step[0] == 'o' ? 1 : 2, NULL, held ? &more : &held);
        } else if (!strcmp(step, "friends")) {
            reserve(1, "launcher ", &more);
        } else if (!strcmp(step, "enter") || !strcmp(step, "order")) {
            if (trimtab_ranks_order(held, 0, &text, NULL)) return 2;
            fflush(stdout);
            if (step[0] == 'o') {
                printf("%s\n", *text ? text : "empty");
            } else if (fork() == 0) {
                enter(text);
                _exit(0);
            } else {
                wait(NULL);
            }
            trimtab_cores_free(text);
        } else if (!strcmp(step, "release")) {
            trimtab_ranks_release(held);
            held = NULL;
            printf("released\n");
        } else if (!strcmp(step, "list")) {
            int holds = 0;
            if (trimtab_cores_list(&text, NULL)) return 3;
            for (const char *hold = text; (hold = strstr(hold, "\"age_s\"")); hold++) holds++;
            printf("holds: %d\n", holds);
            trimtab_cores_free(text);
        } else if (!strcmp(step, "settings")) {
            printf("accepted: %d\n", !trimtab_cores_check_settings("strategy=scatter smt=all", NULL) +
                                         !trimtab_cores_check_settings("strategy=sctter", NULL));
        } else if (!strcmp(step, "bad")) {
            printf("bad: %d\n", bad());
        }
        trimtab_ranks_release(more);
        fflush(stdout);
    }
    return 0;
}
