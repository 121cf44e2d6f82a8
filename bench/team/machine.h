/*
 * What programs with ranks need of the machine: clocks, what others take of
 * it, binding, and how they end.
 */
#ifndef BENCH_TEAM_MACHINE_H
#define BENCH_TEAM_MACHINE_H

#include <stdbool.h>

#define RANKS_MAX 512

/* Exit statuses.  Mind that 1 and 3 are not those of common/report.h: launchers of MPI end with 1 by themselves. */
enum {
    TEAM_EXIT_DONE = 0,
    TEAM_EXIT_CANNOT_RUN = 1,  /* no memory, ranks or CPUs, or the report could not be written */
    TEAM_EXIT_BAD_USAGE = 2,   /* the command line was not understood */
    TEAM_EXIT_WRONG_RESULT = 3 /* an operation did not give what it should */
};

/* What a clock (CLOCK_...) says, in seconds. */
double seconds_of(int clock);

/* Seconds of the machine's clock, which is the same in all processes. */
double now(void);

/* CPU seconds of all CPUs since the machine was started; negative if they cannot be read. */
double machine_busy(void);

/* Binds the calling thread to the CPU `turn` modulo their number, of those allowed. */
void pin(int turn);

/* What a launcher of MPI tells each rank, before MPI does: only one speaks of the command line they all have. */
bool first_of_a_launch(void);

/* One line on stderr, and the program's end with TEAM_EXIT_CANNOT_RUN. */
_Noreturn void cannot(const char *what);

#endif
