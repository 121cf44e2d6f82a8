/*
 * Nested teams of threads.
 */
#ifndef BENCH_NESTED_TEAMS_H
#define BENCH_NESTED_TEAMS_H

#include <stdatomic.h>

/* Y outer threads, each of which opens a team of Z. */
struct team_shape {
    int outer;
    int inner;
};

/*
 * Prepares the runtime for two levels of exactly these sizes and opens all teams
 * once, at the same time, so that a program measures the shape it reports.  Ends
 * the program with a message and status BENCH_EXIT_CANNOT_RUN if the runtime
 * gives fewer threads, or fails: runtimes that cannot start a thread end the
 * program themselves, with a status that has another meaning here.
 */
void start_teams(const char *program, struct team_shape shape);

/* To be called when all parallel work is done, before the report. */
void end_teams(void);

/*
 * A common start for the masters of all teams that, unlike a barrier of OpenMP,
 * may be passed from inside their teams' regions: there the runtime's barrier
 * is the inner team's own.
 */
struct gate {
    atomic_llong arrivals; /* of all times together */
    int teams;
};

/* Returns when the masters of all teams have called it equally often. */
void pass_gate(struct gate *gate);

#endif
