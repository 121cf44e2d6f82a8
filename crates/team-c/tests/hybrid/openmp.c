/* OpenMP inside the ranks of a team, and OpenMP's threads as its ranks. Argument: inside or threads. */
#include "check.h"
#include <omp.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#define MOST_CPUS 1024
#define WORDS (MOST_CPUS / 64)
#define RANKS 4

/* From the kernel, independent of any library. */
static void mask_of_this_thread(uint64_t mask[WORDS]) {
    memset(mask, 0, WORDS * sizeof *mask);
    IS(syscall(SYS_sched_getaffinity, 0, WORDS * sizeof *mask, mask) > 0);
}

static int within(const uint64_t part[WORDS], const uint64_t whole[WORDS]) {
    for (int i = 0; i < WORDS; i++)
        if (part[i] & ~whole[i]) return 0;
    return 1;
}

static int count(const uint64_t mask[WORDS]) {
    int all = 0;
    for (int i = 0; i < WORDS; i++) all += __builtin_popcountll(mask[i]);
    return all;
}

/* A rank as it was started: teams of two in teams of two, whose results the rank combines with those of the others. */
static void inside(void) {
    trimtab_team team;
    trimtab_rank rank;
    uint32_t me, ranks;
    uint64_t own[WORDS], used[WORDS] = {0}, others[WORDS], outer[2][WORDS];
    /* Before OpenMP begins, the process has all its CPUs. */
    mask_of_this_thread(own);
    OK(trimtab_team_inherited(&team, &me));
    OK(trimtab_team_join(team, me, &rank));
    OK(trimtab_rank_size(rank, &ranks));
    for (int step = 0; step < 20; step++) {
        double sum = 0, all = 0;
        int opened = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum, opened)
        {
            int number = omp_get_thread_num();
            mask_of_this_thread(outer[number]);
            double part = 0;
            int here = 0;
#pragma omp parallel num_threads(2) reduction(+ : part, here)
            {
                uint64_t mask[WORDS];
                mask_of_this_thread(mask);
                /* Within the rank's own CPUs, and bound if there is more than one. */
                IS(within(mask, own) && count(mask) == 1);
#pragma omp critical
                for (int i = 0; i < WORDS; i++) used[i] |= mask[i];
                for (int i = omp_get_thread_num(); i < 1000; i += 2) part += (double)((int)me * 2 + number) * i;
                here++;
            }
            sum += part;
            opened += here;
        }
        IS(opened == 4);
        OK(trimtab_allreduce(rank, &sum, &all, 1, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE));
        /* Teams 0 to 2 * ranks - 1, each its number times the sum of 0 to 999. */
        IS(all == 499500.0 * (ranks * (2 * ranks - 1)));
    }
    /* The teams of a rank are on different cores as far as it has them, and so are all ranks. */
    if (count(own) >= 2) IS(!within(outer[0], outer[1]) && count(used) >= 2);
    OK(trimtab_allreduce(rank, own, others, WORDS, TRIMTAB_U64, TRIMTAB_XOR, TRIMTAB_MINE));
    IS(within(own, others));
    int32_t cpus = count(own), sum;
    OK(trimtab_allreduce(rank, &cpus, &sum, 1, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    IS(sum == count(others));
    OK(trimtab_rank_leave(rank));
    printf("rank %u: %d threads on %d of %d\n", me, 4, count(used), cpus);
}

static trimtab_rank own;
#pragma omp threadprivate(own)

/* Threads of a parallel region are ranks, also of the next regions, as they are the same threads. */
static void threads(void) {
    struct trimtab_team_options options;
    omp_set_dynamic(0);
    for (int round = 0; round < 3; round++) {
        trimtab_team team;
        OK(trimtab_team_options_init(&options, RANKS));
        OK(trimtab_team_new(&options, &team));
#pragma omp parallel num_threads(RANKS)
        OK(trimtab_team_join(team, omp_get_thread_num(), &own));
        OK(trimtab_team_free(team));
        for (int n = 1; n <= 1000; n *= 10) {
            double sums[1000] = {0};
            double *all = sums;
            /* OpenMP's own reduction, of an array. */
#pragma omp parallel num_threads(RANKS) reduction(+ : all[ : 1000])
            for (int i = 0; i < n; i++) all[i] += (omp_get_thread_num() + 1) * 1000 + i;
#pragma omp parallel num_threads(RANKS)
            {
                double in[1000], out[1000];
                uint32_t number;
                OK(trimtab_rank_number(own, &number));
                IS(number == (uint32_t)omp_get_thread_num());
                for (int i = 0; i < n; i++) in[i] = (number + 1) * 1000 + i;
                OK(trimtab_allreduce(own, in, out, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE));
                IS(memcmp(out, sums, n * sizeof *out) == 0);
#pragma omp barrier
                OK(trimtab_scan(own, in, out, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_LOOSE));
                IS(out[0] == 500.0 * (number + 1) * (number + 2));
            }
        }
#pragma omp parallel num_threads(RANKS)
        OK(trimtab_rank_leave(own));
    }
}

int main(int words, char **word) {
    IS(words == 2);
    if (!strcmp(word[1], "inside")) inside();
    if (!strcmp(word[1], "threads")) threads();
    return 0;
}
