/*
 * The kernels by ranks of UPC++, which read each other's outgoing memory one-sidedly, as UPC programs do by upc_memget.
 *
 * Each rank copies what it gets into its own memory.  Blocks of an all-to-all and a gather go through a small area of
 * the same kind.
 */
#include "team/kernels/kernel.h"

#include "team/kernels/upcxx_ranks.h"

#include <stdio.h>
#include <string.h>

/* The areas of a rank, by number. */
enum { AREA_BOARD, AREA_OUTGOING };
/* Room for a block of each rank. */
#define BOARD_BYTES ((size_t)RANKS_MAX * 1024)

/* Data of a rank. */
struct reader {
    unsigned char *board;
    unsigned char *incoming;
    size_t capacity; /* of the incoming memory */
};

static void barrier(struct rank *rank)
{
    (void)rank;
    upcxx_meet();
}

static void sum(struct rank *rank, const void *in, void *out, size_t count, enum number type)
{
    (void)rank;
    if (type == NUMBER_I32)
        upcxx_sum_i32(in, out, count);
    else
        upcxx_sum_f64(in, out, count);
}

/* Shows `bytes` bytes to all ranks; each takes `block` bytes of every rank's, from `at` on. */
static void by_board(struct rank *rank, const void *in, size_t bytes, size_t at, void *out, size_t block)
{
    struct reader *reader = rank->team;
    if (bytes > BOARD_BYTES)
        cannot("exchange this many bytes at once");
    memcpy(reader->board, in, bytes);
    upcxx_meet();
    for (int from = 0; from < rank->job->ranks; from++)
        upcxx_read(from, AREA_BOARD, at, (unsigned char *)out + (size_t)from * block, block);
    upcxx_read_all();
    upcxx_meet();
}

static void alltoall(struct rank *rank, const void *in, void *out, size_t bytes)
{
    by_board(rank, in, bytes * (size_t)rank->job->ranks, (size_t)rank->me * bytes, out, bytes);
}

static void gather(struct rank *rank, const double *mine, int count, double *all)
{
    const size_t bytes = (size_t)count * sizeof *mine;
    by_board(rank, mine, bytes, 0, all, bytes);
}

static unsigned char *outgoing(struct rank *rank, size_t bytes)
{
    (void)rank;
    unsigned char *area = upcxx_area(bytes);
    if (area == NULL)
        cannot("get memory in the shared segment: UPCXX_SHARED_HEAP_SIZE sets its size for each rank");
    return area;
}

static void read_parcels(struct rank *rank, struct parcels *parcels)
{
    struct reader *reader = rank->team;
    size_t all = 0;
    for (int from = 0; from < rank->job->ranks; from++)
        all += parcels->take[from];
    if (all > reader->capacity) {
        if (reader->incoming != NULL)
            give_back(reader->incoming, reader->capacity, 1);
        reader->incoming = fresh(all, 1);
        reader->capacity = all;
    }
    upcxx_meet();
    unsigned char *to = reader->incoming;
    for (int from = 0; from < rank->job->ranks; from++) {
        upcxx_read(from, AREA_OUTGOING, parcels->take_at[from], to, parcels->take[from]);
        parcels->arrived[from] = to;
        to += parcels->take[from];
    }
    upcxx_read_all();
}

/* Others may still read this rank's outgoing memory. */
static void over(struct rank *rank)
{
    (void)rank;
    upcxx_meet();
}

static const struct ways ways = {
    .name = "upcxx",
    .kind = "process",
    .processes = true,
    .barrier = barrier,
    .sum = sum,
    .alltoall = alltoall,
    .gather = gather,
    .outgoing = outgoing,
    .exchange = read_parcels,
    .over = over,
};

int main(int argc, char **argv)
{
    static struct reader reader;
    struct rank rank = {.ways = &ways, .team = &reader};
    int ranks = 0;
    /* Before the ranks are forked, so that a message comes once. */
    const struct job job = read_job("kernels_upcxx", false, true, argc, argv);
    rank.job = &job;
    upcxx_begin(&rank.me, &ranks);
    int status = TEAM_EXIT_BAD_USAGE;
    if (job.ranks == ranks) {
        reader.board = upcxx_area(BOARD_BYTES);
        if (reader.board == NULL)
            cannot("get memory in the shared segment: UPCXX_SHARED_HEAP_SIZE sets its size for each rank");
        status = run_kernel(&rank);
    } else if (rank.me == 0) {
        fprintf(stderr, "kernels_upcxx: %d ranks asked for, %d started (GASNET_PSHM_NODES)\n", job.ranks, ranks);
    }
    upcxx_end();
    return status;
}
