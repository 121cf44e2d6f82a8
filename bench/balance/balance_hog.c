/*
 * A competitor: one thread that computes until it is told to end, all of the
 * time or a share of it.  Bound to one CPU and on for half of the time, it
 * turns equal cores into a slow and a fast one.  It prints "ready" when it has
 * begun, and ends with its parent, however the parent ends.
 */
#define _GNU_SOURCE

#include "balance/clock.h"
#include "balance/options.h"
#include "balance/work.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static const struct balance_program program = {"balance_hog", "a competitor for the CPU"};

/* Steps between two readings of the clock: some ten microseconds. */
#define STEPS UINT64_C(20000)

static void sleep_until(double when)
{
    const struct timespec until = {(time_t)when, (long)(1e9 * (when - (double)(time_t)when))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

int main(int argc, char **argv)
{
    struct counts cpus = {.length = 0};
    bool session = false;
    double duty = 100.0;
    double period = 0.01;
    double limit = 3600.0;
    const struct balance_option options[] = {
        {"--cpu", "bind it to this CPU", OPTION_COUNTS, &cpus, 0, CPU_SETSIZE - 1, NULL},
        {"--setsid", "in a session of its own", OPTION_FLAG, &session, 0, 0, NULL},
        {"--duty", "compute this share of each period, in percent", OPTION_NUMBER, &duty, 1, 100,
         NULL},
        {"--period", "seconds of a period", OPTION_NUMBER, &period, 0.001, 10, NULL},
        {"--limit", "end after this many seconds at the latest", OPTION_NUMBER, &limit,
         0.001, 86400, NULL},
    };
    parse_options(&program, options, sizeof options / sizeof options[0], argc, argv);
    const pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        give_up(&program, "the parent process has ended");
    /* A process group's leader cannot open a session. */
    if (session && setsid() < 0)
        give_up(&program, "cannot open a session of its own");
    if (cpus.length > 0) {
        cpu_set_t bound;
        CPU_ZERO(&bound);
        for (size_t i = 0; i < cpus.length; i++)
            CPU_SET((size_t)cpus.values[i], &bound);
        if (sched_setaffinity(0, sizeof bound, &bound) != 0)
            give_up(&program, "cannot be bound to that CPU");
    }
    if (puts("ready") < 0 || fflush(stdout) != 0)
        give_up(&program, "cannot say that it is ready");

    const double end = seconds_of(CLOCK_MONOTONIC) + limit;
    volatile uint64_t state = 1;
    for (double begin = seconds_of(CLOCK_MONOTONIC); begin < end; begin += period) {
        double now = begin;
        while (now < end && now < begin + period * duty / 100.0) {
            state = work(state, STEPS);
            now = seconds_of(CLOCK_MONOTONIC);
        }
        if (duty < 100.0)
            sleep_until(begin + period);
    }
    return 0;
}
