/* Ranks exchange data by a team. For tools that watch memory: with the word "race" threads write a
 * number without order. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trimtab/team.h>

#define RANKS 3
#define MANY 8000
#define OK(call) expect(call, #call, __LINE__)

static void expect(int got, const char *what, int line) {
    if (got == TRIMTAB_OK) return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, trimtab_last_error());
    exit(1);
}

static trimtab_team team;
static int ordered[RANKS], unordered, race;

static void *work(void *number) {
    uint32_t me = (uint32_t)(intptr_t)number, next = (me + 1) % RANKS;
    trimtab_rank rank;
    trimtab_block block;
    void *own, *theirs;
    OK(trimtab_team_join(team, me, &rank));
    OK(trimtab_alloc(rank, 64 * sizeof(int), &block, &own));
    OK(trimtab_block_of(rank, block, next, &theirs));
    int *numbers = (int *)malloc(2 * MANY * sizeof *numbers), *sums = numbers + MANY;
    for (int round = 0; round < 3; round++) {
        /* Written by one thread and read by another, in the program's memory and in the team's. */
        ordered[me] = round + (int)me;
        ((int *)own)[7] = round * 2 + (int)me;
        OK(trimtab_barrier(rank));
        if (ordered[next] != round + (int)next || ((int *)theirs)[7] != round * 2 + (int)next) exit(2);
        OK(trimtab_barrier(rank));
        for (size_t count = 1; count <= MANY; count *= 20) {
            for (size_t i = 0; i < count; i++) numbers[i] = (int)i + round;
            OK(trimtab_allreduce(rank, numbers, sums, count, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
            for (size_t i = 0; i < count; i++)
                if (sums[i] != RANKS * ((int)i + round)) exit(3);
            OK(trimtab_broadcast(rank, numbers, count, TRIMTAB_I32, 1, TRIMTAB_MINE));
        }
        /* Ordered by a started call. */
        ordered[me] = -round;
        struct trimtab_collective call =
            trimtab_collective_of(TRIMTAB_ALLREDUCE, numbers, sums, 9, TRIMTAB_I32, TRIMTAB_MAX, 0, TRIMTAB_MINE);
        trimtab_request request;
        int done = 0;
        OK(trimtab_start(rank, &call, &request));
        while (!done) OK(trimtab_test(rank, request, &done));
        if (ordered[next] != -round) exit(4);
        OK(trimtab_barrier(rank));
        if (race) unordered++;
    }
    free(numbers);
    OK(trimtab_block_free(rank, block));
    OK(trimtab_rank_leave(rank));
    return NULL;
}

int main(int count, char **words) {
    race = count > 1 && !strcmp(words[1], "race");
    struct trimtab_team_options options;
    OK(trimtab_team_options_init(&options, RANKS));
    options.heap = 1 << 20;
    OK(trimtab_team_new(&options, &team));
    pthread_t threads[RANKS];
    for (intptr_t i = 0; i < RANKS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    OK(trimtab_team_free(team));
    puts("done");
    return 0;
}
