/* Stand-in with the report of a reference program of the NAS Parallel Benchmarks: kernel and class by the name of its file (cg.W.x). It
   takes a quarter of a second for each thread or rank, and is verified unless the file "wrong" exists. With -DREPORTS_MPI it has ranks. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef REPORTS_MPI
#include <mpi.h>
#else
#include <omp.h>
#endif

int main(int argc, char **argv)
{
    int count = 0, me = 0;
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
#ifdef REPORTS_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Barrier(MPI_COMM_WORLD);
    const char *what = "processes";
#else
    (void)argc;
#pragma omp parallel
#pragma omp single
    count = omp_get_num_threads();
    const char *what = "threads  ";
#endif
    if (me == 0) {
        printf("\n\n %c%c Benchmark Completed.\n", toupper(name[0]), toupper(name[1]));
        printf(" Class           =                        %c\n", name[3]);
        printf(" Time in seconds = %24.2f\n Total %s = %24d\n", 0.25 * count, what, count);
        printf(" Verification    =             %12s\n", access("wrong", F_OK) == 0 ? "UNSUCCESSFUL" : "SUCCESSFUL");
    }
#ifdef REPORTS_MPI
    MPI_Finalize();
#endif
    return 0;
}
