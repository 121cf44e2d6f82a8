/*
 * Interface of the kernels, among threads.  See shared.h.
 */
#include "team/kernels/shared.h"

#include <stdint.h>
#include <string.h>

static const struct shared *give(struct rank *rank, const void *mine)
{
    struct shared *shared = rank->team;
    shared->given[rank->me] = mine;
    rank->ways->barrier(rank);
    return shared;
}

/* Every rank adds up all numbers, in the order of ranks, so that all have the same bits. */
void shared_sum(struct rank *rank, const void *in, void *out, size_t count, enum number type)
{
    const struct shared *shared = give(rank, in);
    memcpy(out, shared->given[0], count * (type == NUMBER_I32 ? sizeof(int32_t) : sizeof(double)));
    for (int other = 1; other < rank->job->ranks; other++) {
        if (type == NUMBER_I32) {
            const int32_t *from = shared->given[other];
            for (size_t i = 0; i < count; i++)
                ((int32_t *)out)[i] += from[i];
        } else {
            const double *from = shared->given[other];
            for (size_t i = 0; i < count; i++)
                ((double *)out)[i] += from[i];
        }
    }
    rank->ways->barrier(rank);
}

void shared_alltoall(struct rank *rank, const void *in, void *out, size_t bytes)
{
    const struct shared *shared = give(rank, in);
    for (int from = 0; from < rank->job->ranks; from++)
        memcpy((unsigned char *)out + (size_t)from * bytes,
               (const unsigned char *)shared->given[from] + (size_t)rank->me * bytes, bytes);
    rank->ways->barrier(rank);
}

void shared_gather(struct rank *rank, const double *mine, int count, double *all)
{
    const struct shared *shared = give(rank, mine);
    for (int from = 0; from < rank->job->ranks; from++)
        memcpy(all + from * count, shared->given[from], (size_t)count * sizeof *all);
    rank->ways->barrier(rank);
}

unsigned char *shared_outgoing(struct rank *rank, size_t bytes)
{
    struct shared *shared = rank->team;
    shared->outgoing[rank->me] = fresh(bytes, 1);
    return shared->outgoing[rank->me];
}

void shared_exchange(struct rank *rank, struct parcels *parcels)
{
    const struct shared *shared = rank->team;
    rank->ways->barrier(rank);
    for (int from = 0; from < rank->job->ranks; from++)
        parcels->arrived[from] = shared->outgoing[from] + parcels->take_at[from];
}

void shared_over(struct rank *rank)
{
    rank->ways->barrier(rank);
}
