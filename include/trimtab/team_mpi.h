/* The ranks of an MPI communicator as a team. Works with any MPI: this code is not in the library, it is compiled with your mpicc.
 *
 *     trimtab_team team;
 *     trimtab_rank rank;
 *     trimtab_team_of_comm(MPI_COMM_WORLD, NULL, &team);      // all ranks of the communicator call it
 *     trimtab_team_join(team, number_in_the_communicator, &rank);
 *
 * A team is of one machine. If a job has several, make a communicator of each machine's ranks first:
 *
 *     MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
 *
 * Calls of MPI and of the team may follow each other in any order that is the same at all ranks. A rank that waits in the team makes no
 * progress on MPI's messages, unless it has a hook for that:
 *
 *     trimtab_rank_progress(rank, trimtab_mpi_progress, &comm);   // comm: any communicator that outlives the rank
 *
 * A rank that waits in MPI makes no progress on calls that it has started in the team. */
#ifndef TRIMTAB_TEAM_MPI_H
#define TRIMTAB_TEAM_MPI_H

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <trimtab/team.h>
#include <unistd.h>

/* Reads exactly `count` bytes of a file; returns 0 if that is not possible. */
static inline int trimtab_mpi_read(const char *path, unsigned char *bytes, size_t count) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, bytes, count);
    if (file >= 0) close(file);
    return got == (ssize_t)count;
}

/* A hook for the waits of a team: lets MPI progress. `comm` points to a communicator; messages in it are not received. */
static inline int trimtab_mpi_progress(void *comm) {
    int there;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *(MPI_Comm *)comm, &there, MPI_STATUS_IGNORE);
    return 0;
}

/* The team of a communicator's ranks; each joins it by its number there. Options give everything but the number of ranks; NULL: defaults.
 *
 * TRIMTAB_REFUSED at all ranks if they are on several machines, TRIMTAB_SYSTEM if MPI fails and does not end the program itself. */
static inline int trimtab_team_of_comm(MPI_Comm comm, const struct trimtab_team_options *options, trimtab_team *team) {
    int rank, size, all, code;
    /* The name of this communicator's team: random numbers, which are unique, and the identity of the machine. */
    struct {
        unsigned char random[16], machine[36];
    } first, own;
    struct trimtab_team_options asked;
    char key[2 * sizeof first.random + 1];
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &size) != MPI_SUCCESS) return TRIMTAB_SYSTEM;
    memset(&own, 0, sizeof own);
    all = trimtab_mpi_read("/proc/sys/kernel/random/boot_id", own.machine, sizeof own.machine) &&
          trimtab_mpi_read("/dev/urandom", own.random, sizeof own.random);
    memcpy(&first, &own, sizeof first);
    if (MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, comm) != MPI_SUCCESS) return TRIMTAB_SYSTEM;
    /* All ranks get the same answer, so that none waits for one that has given up. */
    all = all && memcmp(first.machine, own.machine, sizeof own.machine) == 0;
    if (MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm) != MPI_SUCCESS) return TRIMTAB_SYSTEM;
    if (!all) return TRIMTAB_REFUSED;
    code = trimtab_team_options_init(&asked, (uint32_t)size);
    if (code != TRIMTAB_OK) return code;
    if (options) {
        asked = *options;
        asked.ranks = (uint32_t)size;
    }
    for (size_t i = 0; i < sizeof first.random; i++) snprintf(key + 2 * i, 3, "%02x", first.random[i]);
    return trimtab_team_of_job((uint32_t)rank, key, &asked, team);
}

#endif
