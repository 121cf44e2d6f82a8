/* The begin and the end of the program. */
#include "trimtab_mpi.h"

void end(void) {
    int rank = 0, on = teams_on;
    unsigned long by_team = 0, by_mpi = 0;
    leave_all(&by_team, &by_mpi);
    if (getenv("TRIMTAB_MPI_REPORT") && PMPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS && rank == 0)
        fprintf(stderr, "trimtab: collectives of rank 0: %lu by teams, %lu by MPI%s\n", by_team, by_mpi, on ? "" : " (teams are off: TRIMTAB_MPI=off)");
}

EXPORT int MPI_Init(int *count, char ***words) {
    int error = PMPI_Init(count, words);
    if (error == MPI_SUCCESS) begin();
    return error;
}

EXPORT int MPI_Init_thread(int *count, char ***words, int wanted, int *given) {
    int error = PMPI_Init_thread(count, words, wanted, given);
    if (error == MPI_SUCCESS) begin();
    return error;
}

EXPORT int MPI_Finalize(void) {
    end();
    return PMPI_Finalize();
}
