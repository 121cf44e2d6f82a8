/*
 * Collective operations by hand.  See shared.h.
 */
#define _GNU_SOURCE

#include "team/shared.h"

#include <string.h>
#include <sys/mman.h>

/* Doubles in a cache line: no two ranks write to the same line of a result. */
#define LINE 8
/* Doubles that are added at a time, so that they stay in the nearest cache. */
#define CHUNK 1024

static void *map_shared(size_t bytes)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        cannot("get shared memory");
    return mapped;
}

void shared_begin(struct shared *shared, const struct cell *cell)
{
    const size_t bytes = buffer_bytes(cell);
    shared->result = map_shared(bytes);
    shared->table = map_shared((size_t)cell->ranks * GATHER_MAX * sizeof *shared->table);
    for (int rank = 0; shared->staged && rank < cell->ranks; rank++)
        shared->sources[rank] = map_shared(bytes);
}

/* Writes its part of the shared memory, so that no first touch is timed. */
void shared_prepare(struct rank *rank)
{
    struct shared *shared = rank->team;
    const size_t bytes = buffer_bytes(rank->cell);
    if (shared->staged)
        memset(shared->sources[rank->me], 0, bytes);
    else
        shared->sources[rank->me] = rank->in;
    if (rank->me == 0)
        memset(shared->result, 0, bytes);
    shared->barrier(rank);
}

static void stage(const struct rank *rank)
{
    const struct shared *shared = rank->team;
    if (shared->staged)
        memcpy(shared->sources[rank->me], rank->in, buffer_bytes(rank->cell));
}

void shared_bcast(struct rank *rank)
{
    const struct shared *shared = rank->team;
    if (rank->me == 0)
        stage(rank);
    shared->barrier(rank);
    if (rank->me != 0)
        memcpy(rank->in, shared->sources[0], rank->cell->bytes);
    shared->barrier(rank);
}

/* Adds the elements of all ranks, in the order of the ranks. */
static void add(const struct rank *rank, size_t from, size_t to)
{
    const struct shared *shared = rank->team;
    double *sum = (double *)(void *)shared->result;
    for (size_t chunk = from; chunk < to; chunk += CHUNK) {
        const size_t end = to - chunk < CHUNK ? to : chunk + CHUNK;
        memcpy(sum + chunk, (const double *)(void *)shared->sources[0] + chunk, (end - chunk) * sizeof *sum);
        for (int other = 1; other < rank->cell->ranks; other++) {
            const double *restrict source = (const double *)(void *)shared->sources[other];
            for (size_t i = chunk; i < end; i++)
                sum[i] += source[i];
        }
    }
}

/* Every rank adds a part of its own, and copies the whole result. */
void shared_allreduce(struct rank *rank)
{
    const struct shared *shared = rank->team;
    const size_t count = rank->cell->bytes / sizeof(double);
    const size_t lines = (count + LINE - 1) / LINE;
    const size_t ranks = (size_t)rank->cell->ranks;
    const size_t me = (size_t)rank->me;
    const size_t from = lines * me / ranks * LINE;
    const size_t to = lines * (me + 1) / ranks * LINE;
    stage(rank);
    shared->barrier(rank);
    add(rank, from, to < count ? to : count);
    shared->barrier(rank);
    /* No rank writes to the result before all have arrived at the next call's first barrier. */
    memcpy(rank->out, shared->result, rank->cell->bytes);
}

void shared_alltoall(struct rank *rank)
{
    const struct shared *shared = rank->team;
    const size_t bytes = rank->cell->bytes;
    stage(rank);
    shared->barrier(rank);
    /* Each rank begins with another one, so that not all read the same memory at once. */
    for (int turn = 0; turn < rank->cell->ranks; turn++) {
        const int from = (rank->me + turn) % rank->cell->ranks;
        memcpy(rank->out + (size_t)from * bytes, shared->sources[from] + (size_t)rank->me * bytes, bytes);
    }
    shared->barrier(rank);
}

void shared_gather(struct rank *rank, const double *mine, int count, double *all)
{
    const struct shared *shared = rank->team;
    const size_t bytes = (size_t)count * sizeof *mine;
    memcpy(shared->table + (size_t)rank->me * (size_t)count, mine, bytes);
    shared->barrier(rank);
    memcpy(all, shared->table, (size_t)rank->cell->ranks * bytes);
    shared->barrier(rank);
}
