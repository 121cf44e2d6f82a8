/*
 * The kernels by ranks of MPI, as its launcher starts them.  The compiler's
 * wrapper selects the library (Makefile); its settings come from the environment.
 *
 * Parcels are sent by MPI_Allgatherv if a rank sends the same to all, by MPI_Alltoall if all are equally long, else by
 * MPI_Alltoallv.
 */
#include "team/kernels/kernel.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

#ifdef OPEN_MPI
#define LIBRARY "openmpi"
#else
#define LIBRARY "mpich"
#endif

/* MPI counts in an int: all data here consist of these. */
#define WORD sizeof(int)

/* Data of a rank. */
struct mailbox {
    unsigned char *outgoing;
    unsigned char *incoming;
    size_t capacity; /* of the receive buffer */
    int *counts;     /* of what is sent, where it is, of what is received, where it goes; of each rank */
};

static int words(size_t bytes)
{
    if (bytes / WORD > INT32_MAX)
        cannot("send this many bytes at once");
    return (int)(bytes / WORD);
}

static void barrier(struct rank *rank)
{
    (void)rank;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void sum(struct rank *rank, const void *in, void *out, size_t count, enum number type)
{
    (void)rank;
    MPI_Allreduce(in, out, (int)count, type == NUMBER_I32 ? MPI_INT32_T : MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(struct rank *rank, const void *in, void *out, size_t bytes)
{
    (void)rank;
    MPI_Alltoall(in, words(bytes), MPI_INT, out, words(bytes), MPI_INT, MPI_COMM_WORLD);
}

static void gather(struct rank *rank, const double *mine, int count, double *all)
{
    (void)rank;
    MPI_Allgather(mine, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

static unsigned char *outgoing(struct rank *rank, size_t bytes)
{
    struct mailbox *box = rank->team;
    box->outgoing = fresh(bytes, 1);
    box->capacity = bytes;
    box->incoming = fresh(bytes, 1);
    box->counts = fresh(4 * (size_t)rank->job->ranks, sizeof *box->counts);
    return box->outgoing;
}

static void send(struct rank *rank, struct parcels *parcels)
{
    struct mailbox *box = rank->team;
    const int ranks = rank->job->ranks;
    int *const send = box->counts;
    int *const send_at = send + ranks;
    int *const take = send_at + ranks;
    int *const take_at = take + ranks;
    size_t all = 0;
    for (int r = 0; r < ranks; r++) {
        send[r] = words(parcels->send[r]);
        send_at[r] = words(parcels->send_at[r]);
        take[r] = words(parcels->take[r]);
        take_at[r] = words(all);
        all += parcels->take[r];
    }
    if (all > box->capacity) {
        give_back(box->incoming, box->capacity, 1);
        box->incoming = fresh(all, 1);
        box->capacity = all;
    }
    for (int r = 0; r < ranks; r++)
        parcels->arrived[r] = box->incoming + (size_t)take_at[r] * WORD;
    if (parcels->same)
        MPI_Allgatherv(box->outgoing, send[0], MPI_INT, box->incoming, take, take_at, MPI_INT, MPI_COMM_WORLD);
    else if (parcels->even)
        MPI_Alltoall(box->outgoing, send[0], MPI_INT, box->incoming, take[0], MPI_INT, MPI_COMM_WORLD);
    else
        MPI_Alltoallv(box->outgoing, send, send_at, MPI_INT, box->incoming, take, take_at, MPI_INT, MPI_COMM_WORLD);
}

/* The receivers have copies of the sent data. */
static void over(struct rank *rank)
{
    (void)rank;
}

static const struct ways ways = {
    .name = LIBRARY,
    .kind = "process",
    .processes = true,
    .barrier = barrier,
    .sum = sum,
    .alltoall = alltoall,
    .gather = gather,
    .outgoing = outgoing,
    .exchange = send,
    .over = over,
};

int main(int argc, char **argv)
{
    static struct mailbox box;
    struct rank rank = {.ways = &ways, .team = &box};
    int ranks = 0;
    /* Before MPI_Init: for a launcher, a process that ends between MPI_Init and MPI_Finalize has failed, even with
     * status 0. */
    const struct job job = read_job("kernels_" LIBRARY, false, first_of_a_launch(), argc, argv);
    rank.job = &job;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank.me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int status = TEAM_EXIT_BAD_USAGE;
    if (job.ranks == ranks)
        status = run_kernel(&rank);
    else if (rank.me == 0)
        fprintf(stderr, "kernels_" LIBRARY ": %d ranks asked for, %d started\n", job.ranks, ranks);
    MPI_Finalize();
    return status;
}
