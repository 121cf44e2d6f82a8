/* The processing elements of a SHMEM program as a team, beside their own symmetric memory. Arguments: FILE, for each element's result;
 * none: only initialises and finalises. */
#include "check.h"
#include <fcntl.h>
#include <shmem.h>
#include <string.h>

#define MOST 3000

static char key[33];
static long symmetric[MOST], sums[MOST], work[MOST / 2 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long sync_of_sums[SHMEM_REDUCE_SYNC_SIZE];

int main(int count, char **words) {
    shmem_init();
    if (count < 2) {
        shmem_finalize();
        return 0;
    }
    int me = shmem_my_pe(), all = shmem_n_pes();
    struct trimtab_team_options options;
    trimtab_team team;
    trimtab_rank rank;
    if (me == 0) {
        unsigned char random[16];
        int file = open("/dev/urandom", O_RDONLY);
        IS(file >= 0 && read(file, random, sizeof random) == (ssize_t)sizeof random);
        close(file);
        for (size_t i = 0; i < sizeof random; i++) snprintf(key + 2 * i, 3, "%02x", random[i]);
    }
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++) sync_of_sums[i] = SHMEM_SYNC_VALUE;
    shmem_barrier_all();
    if (me != 0) shmem_getmem(key, key, sizeof key, 0);
    /* Other elements may need this one's help to read its memory, and it gives none while it waits in a team. */
    shmem_barrier_all();
    OK(trimtab_team_options_init(&options, (uint32_t)all));
    OK(trimtab_team_of_job((uint32_t)me, key, &options, &team));
    OK(trimtab_team_join(team, me, &rank));
    for (int n = 1; n <= MOST; n = n * 10 < MOST ? n * 10 : n == MOST ? n + 1 : MOST) {
        long out[MOST], right[MOST], neighbours[MOST];
        for (int i = 0; i < n; i++) symmetric[i] = me * 100000 + i;
        /* A neighbour's value is visible after the team's barrier. */
        OK(trimtab_barrier(rank));
        shmem_long_get(neighbours, symmetric, (size_t)n, (me + 1) % all);
        shmem_barrier_all();
        for (int i = 0; i < n; i++) IS(neighbours[i] == (me + 1) % all * 100000 + i);
        OK(trimtab_allreduce(rank, symmetric, out, (size_t)n, TRIMTAB_I64, TRIMTAB_SUM, TRIMTAB_MINE));
        shmem_long_sum_to_all(sums, symmetric, n, 0, 0, all, work, sync_of_sums);
        IS(memcmp(out, sums, (size_t)n * sizeof *out) == 0);
        shmem_barrier_all();
        for (int i = 0; i < n; i++) right[i] = (me + 1) * 7 + i;
        shmem_long_put(sums, right, (size_t)n, (me + 1) % all);
        shmem_barrier_all();
        for (int i = 0; i < n; i++) IS(sums[i] == ((me + all - 1) % all + 1) * 7 + i);
        OK(trimtab_barrier(rank));
    }
    OK(trimtab_rank_leave(rank));
    char line[60];
    int said = snprintf(line, sizeof line, "element %d of %d agrees\n", me, all);
    int file = open(words[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    IS(file >= 0 && write(file, line, (size_t)said) == said);
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
