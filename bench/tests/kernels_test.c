/*
 * Checks that the kernels detect a library with wrong operations: three threads,
 * right operations (team/kernels/shared.c), and one of them replaced.
 */
#define _GNU_SOURCE

#include "team/kernels/shared.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RANKS 3

static int failures;
static pthread_barrier_t meeting;

static void meet(struct rank *rank)
{
    (void)rank;
    pthread_barrier_wait(&meeting);
}

static const struct ways right = {
    .name = "test",
    .kind = "thread",
    .barrier = meet,
    .sum = shared_sum,
    .alltoall = shared_alltoall,
    .gather = shared_gather,
    .outgoing = shared_outgoing,
    .exchange = shared_exchange,
    .over = shared_over,
};

/* Changes one number of one rank's sum slightly: for EP and CG by as much as their published values can
 * detect. */
static void spoilt_sum(struct rank *rank, const void *in, void *out, size_t count, enum number type)
{
    shared_sum(rank, in, out, count, type);
    if (rank->me != RANKS - 1)
        return;
    if (type == NUMBER_F64)
        *(double *)out *= 1.0 + (rank->job->kernel == KERNEL_FT || rank->job->kernel == KERNEL_IS ? 1e-11 : 1e-6);
    else
        *(int32_t *)out += 1;
}

/* Replaces the beginning of a parcel from one rank to another by its end. */
static void spoilt_exchange(struct rank *rank, struct parcels *parcels)
{
    /* Rows of MG begin with padding. */
    static const size_t numbers[KERNEL_COUNT] = {[KERNEL_FT] = 16, [KERNEL_IS] = 4, [KERNEL_CG] = 8, [KERNEL_MG] = 64};
    const size_t number = numbers[rank->job->kernel];
    if (rank->me == 1 && parcels->send[2] >= 2 * number) {
        unsigned char *const first = ((struct shared *)rank->team)->outgoing[1] + parcels->send_at[2];
        memcpy(first, first + parcels->send[2] - number, number);
    }
    shared_exchange(rank, parcels);
}

struct thread {
    pthread_t id;
    struct rank rank;
    int status;
};

static void *run(void *argument)
{
    struct thread *thread = argument;
    thread->status = run_kernel(&thread->rank);
    return NULL;
}

static void expect(const char *what, const struct job *job, const struct ways *ways, int status)
{
    static struct shared shared;
    struct thread threads[RANKS];
    memset(&shared, 0, sizeof shared);
    for (int me = 0; me < RANKS; me++) {
        threads[me].rank = (struct rank){.job = job, .ways = ways, .me = me, .team = &shared};
        pthread_create(&threads[me].id, NULL, run, &threads[me]);
    }
    for (int me = 0; me < RANKS; me++)
        pthread_join(threads[me].id, NULL);
    for (int me = 0; me < RANKS; me++)
        if (threads[me].status != status) {
            fprintf(stderr, "FAILED: %s: rank %d ends with %d, not %d\n", what, me, threads[me].status, status);
            failures++;
        }
}

int main(void)
{
    struct job job = {.ranks = RANKS, .processes = 1, .problem_class = CLASS_S, .repeats = 2};
    struct ways sums = right;
    struct ways parcels = right;
    sums.sum = spoilt_sum;
    parcels.exchange = spoilt_exchange;
    pthread_barrier_init(&meeting, NULL, RANKS);
    for (int kernel = 0; kernel < KERNEL_COUNT; kernel++) {
        job.kernel = (enum kernel)kernel;
        expect("nothing is wrong", &job, &right, TEAM_EXIT_DONE);
        expect("a sum is wrong", &job, &sums, TEAM_EXIT_WRONG_RESULT);
        /* EP sends no parcels. */
        if (job.kernel != KERNEL_EP)
            expect("a parcel is wrong", &job, &parcels, TEAM_EXIT_WRONG_RESULT);
    }
    /* Without published ranks, only the sort detects the error. */
    job.kernel = KERNEL_IS;
    job.keys = KEYS_LOW;
    expect("a parcel is wrong, most keys small", &job, &parcels, TEAM_EXIT_WRONG_RESULT);
    return failures == 0 ? 0 : 1;
}
