/*
 * Ranks of MPI, as its launcher starts them.  The compiler's wrapper selects
 * the library (Makefile); its settings come from the environment.
 */
#include "team/measure.h"

#include <mpi.h>
#include <stdio.h>

#ifdef OPEN_MPI
#define LIBRARY "openmpi"
#else
#define LIBRARY "mpich"
#endif

static void barrier(struct rank *rank)
{
    (void)rank;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(struct rank *rank)
{
    MPI_Bcast(rank->in, (int)rank->cell->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void allreduce(struct rank *rank)
{
    MPI_Allreduce(rank->in, rank->out, (int)(rank->cell->bytes / sizeof(double)), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void alltoall(struct rank *rank)
{
    const int bytes = (int)rank->cell->bytes;
    MPI_Alltoall(rank->in, bytes, MPI_BYTE, rank->out, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void gather(struct rank *rank, const double *mine, int count, double *all)
{
    (void)rank;
    MPI_Allgather(mine, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

static const struct peer peer = {
    .name = LIBRARY,
    .processes = true,
    .operate = {barrier, bcast, allreduce, alltoall},
    .gather = gather,
};

int main(int argc, char **argv)
{
    int me = 0;
    int ranks = 0;
    /* Before MPI_Init: for a launcher, a process that ends between MPI_Init and MPI_Finalize has failed, even with
     * status 0. */
    const struct cell cell = read_cell("team_" LIBRARY, false, first_of_a_launch(), argc, argv);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int status = TEAM_EXIT_BAD_USAGE;
    if (cell.ranks == ranks) {
        struct rank rank = {.cell = &cell, .me = me};
        status = measure(&peer, &rank);
    } else if (me == 0) {
        fprintf(stderr, "team_" LIBRARY ": %d ranks asked for, %d started\n", cell.ranks, ranks);
    }
    MPI_Finalize();
    return status;
}
