/*
 * Checks that team/measure.c detects a peer with wrong operations: two threads,
 * right operations (team/shared.c), and one of them replaced.
 */
#define _GNU_SOURCE

#include "team/shared.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RANKS 2

static int failures;
static pthread_barrier_t meeting;

static void meet(struct rank *rank)
{
    (void)rank;
    pthread_barrier_wait(&meeting);
}

static void nothing(struct rank *rank)
{
    (void)rank;
}

/* Spoils the last byte, in the last rank. */
static void spoil(struct rank *rank, unsigned char *result)
{
    if (rank->me == RANKS - 1)
        result[buffer_bytes(rank->cell) - 1] ^= 1;
}

static void spoilt_bcast(struct rank *rank)
{
    shared_bcast(rank);
    spoil(rank, rank->in);
}

static void spoilt_allreduce(struct rank *rank)
{
    shared_allreduce(rank);
    spoil(rank, rank->out);
}

static void spoilt_alltoall(struct rank *rank)
{
    shared_alltoall(rank);
    spoil(rank, rank->out);
}

/* Always the result of the first call. */
static unsigned char first[RANKS][RANKS * 64];

static void stale(struct rank *rank, operation *operate, unsigned char *result)
{
    static _Thread_local int calls;
    if (calls++ == 0) {
        operate(rank);
        memcpy(first[rank->me], result, buffer_bytes(rank->cell));
    }
    memcpy(result, first[rank->me], buffer_bytes(rank->cell));
}

static void stale_bcast(struct rank *rank)
{
    stale(rank, shared_bcast, rank->in);
}

static void stale_allreduce(struct rank *rank)
{
    stale(rank, shared_allreduce, rank->out);
}

static void stale_alltoall(struct rank *rank)
{
    stale(rank, shared_alltoall, rank->out);
}

/* Right in the calls that are verified one by one, wrong as soon as calls are timed. */
static void tiring_allreduce(struct rank *rank)
{
    static _Thread_local int calls;
    shared_allreduce(rank);
    if (++calls > 12)
        spoil(rank, rank->out);
}

struct thread {
    pthread_t id;
    const struct peer *peer;
    struct rank rank;
    int status;
};

static void *run(void *argument)
{
    struct thread *thread = argument;
    thread->status = measure(thread->peer, &thread->rank);
    return NULL;
}

/* All ranks end with this status. */
static void expect(int status, enum op op, enum op replaced, operation *replacement)
{
    const struct cell cell = {.ranks = RANKS, .op = op, .bytes = op == OP_BARRIER ? 0 : 64, .batches = 2, .seconds = 1e-2};
    struct shared shared = {.barrier = meet};
    struct peer peer = {.name = "test",
                        .operate = {meet, shared_bcast, shared_allreduce, shared_alltoall},
                        .prepare = shared_prepare,
                        .gather = shared_gather};
    struct thread threads[RANKS];
    peer.operate[replaced] = replacement;
    shared_begin(&shared, &cell);
    for (int me = 0; me < RANKS; me++) {
        threads[me] = (struct thread){.peer = &peer, .rank = {.cell = &cell, .me = me, .team = &shared}};
        if (pthread_create(&threads[me].id, NULL, run, &threads[me]) != 0)
            cannot("start a thread");
    }
    for (int me = 0; me < RANKS; me++)
        pthread_join(threads[me].id, NULL);
    for (int me = 0; me < RANKS; me++)
        if (threads[me].status != status) {
            fprintf(stderr, "FAILED: operation %d, %d replaced: rank %d ended with %d, not %d\n", (int)op, (int)replaced,
                    me, threads[me].status, status);
            failures++;
        }
}

int main(void)
{
    pthread_barrier_init(&meeting, NULL, RANKS);
    expect(TEAM_EXIT_DONE, OP_BARRIER, OP_BARRIER, meet);
    expect(TEAM_EXIT_DONE, OP_BCAST, OP_BARRIER, meet);
    expect(TEAM_EXIT_DONE, OP_ALLREDUCE, OP_BARRIER, meet);
    expect(TEAM_EXIT_DONE, OP_ALLTOALL, OP_BARRIER, meet);
    expect(TEAM_EXIT_WRONG_RESULT, OP_BARRIER, OP_BARRIER, nothing);
    expect(TEAM_EXIT_WRONG_RESULT, OP_BCAST, OP_BCAST, nothing);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLREDUCE, OP_ALLREDUCE, nothing);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLTOALL, OP_ALLTOALL, nothing);
    expect(TEAM_EXIT_WRONG_RESULT, OP_BCAST, OP_BCAST, spoilt_bcast);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLREDUCE, OP_ALLREDUCE, spoilt_allreduce);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLTOALL, OP_ALLTOALL, spoilt_alltoall);
    expect(TEAM_EXIT_WRONG_RESULT, OP_BCAST, OP_BCAST, stale_bcast);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLREDUCE, OP_ALLREDUCE, stale_allreduce);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLTOALL, OP_ALLTOALL, stale_alltoall);
    expect(TEAM_EXIT_WRONG_RESULT, OP_ALLREDUCE, OP_ALLREDUCE, tiring_allreduce);
    return failures == 0 ? 0 : 1;
}
