/*
 * Machine functions for programs with ranks: clocks, the load of other
 * processes, binding, and the end of the program.
 */
#ifndef BENCH_TEAM_MACHINE_H
#define BENCH_TEAM_MACHINE_H

#include <stdbool.h>

#define RANKS_MAX 512

/* Exit statuses.  Note that 1 and 3 differ from common/report.h: launchers of MPI end with 1 by themselves. */
enum {
    TEAM_EXIT_DONE = 0,
    TEAM_EXIT_CANNOT_RUN = 1,  /* no memory, ranks or CPUs, or the report could not be written */
    TEAM_EXIT_BAD_USAGE = 2,   /* the command line was not understood */
    TEAM_EXIT_WRONG_RESULT = 3 /* an operation did not give what it should */
};

/* Reads a clock (CLOCK_...), in seconds. */
double seconds_of(int clock);

/* Seconds of the machine's clock, which is the same in all processes. */
double now(void);

/* CPU seconds of all CPUs since boot; negative if they cannot be read. */
double machine_busy(void);

/* Binds the calling thread to the CPU `turn` modulo their number, of those allowed. */
void pin(int turn);

/* Reads the rank that a launcher of MPI gives each rank before MPI_Init: only one rank reports errors of the
 * common command line. */
bool first_of_a_launch(void);

/* One line on stderr, and the program's end with TEAM_EXIT_CANNOT_RUN. */
_Noreturn void cannot(const char *what);

#endif
