/*
 * Nested teams of threads.  See teams.h.
 */
#define _POSIX_C_SOURCE 200809L /* sigaction */

#include "nested/teams.h"

#include "common/report.h"

#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Whether the end of the program is caused by the runtime. */
static volatile sig_atomic_t working;

/* libgomp calls exit when it cannot start a thread, */
static void on_exit_while_working(void)
{
    if (working)
        _Exit(BENCH_EXIT_CANNOT_RUN);
}

/* and libomp abort; both have printed the reason on stderr. */
static void on_abort(int signal)
{
    (void)signal;
    _Exit(BENCH_EXIT_CANNOT_RUN);
}

void start_teams(const char *program, struct team_shape shape)
{
    int teams = 0;
    int threads = 0;
    const struct sigaction action = {.sa_handler = on_abort};

    fflush(stdout); /* _Exit would lose it */
    working = 1;
    sigaction(SIGABRT, &action, NULL);
    atexit(on_exit_while_working);

    omp_set_dynamic(0);
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(shape.outer) reduction(+ : teams, threads)
    {
        int members = 0;
        teams += 1;
#pragma omp barrier
#pragma omp parallel num_threads(shape.inner) reduction(+ : members)
        members += 1;
        threads += members;
    }
    if (teams != shape.outer || threads != shape.outer * shape.inner) {
        fprintf(stderr, "%s: %dx%d threads asked for, but the runtime gave %d in %d teams\n",
                program, shape.outer, shape.inner, threads, teams);
        exit(BENCH_EXIT_CANNOT_RUN);
    }
}

void end_teams(void)
{
    working = 0;
}

void pass_gate(struct gate *gate)
{
    const long long before = atomic_fetch_add(&gate->arrivals, 1);
    const long long complete = (before / gate->teams + 1) * gate->teams;
    while (atomic_load(&gate->arrivals) < complete)
        sched_yield(); /* there may be more teams than cores */
}
