/*
 * Clocks, other load, binding, end of the program.  See machine.h.
 */
#define _GNU_SOURCE

#include "team/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void cannot(const char *what)
{
    fprintf(stderr, "team: cannot %s\n", what);
    exit(TEAM_EXIT_CANNOT_RUN);
}

double seconds_of(int clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* The first line of /proc/stat: user nice system idle iowait irq softirq, in ticks. */
double machine_busy(void)
{
    double ticks[7];
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL)
        return -1.0;
    const int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2],
                            &ticks[3], &ticks[4], &ticks[5], &ticks[6]);
    fclose(file);
    if (read != 7)
        return -1.0;
    return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / (double)sysconf(_SC_CLK_TCK);
}

void pin(int turn)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        cannot("ask which CPUs are allowed");
    turn %= CPU_COUNT(&allowed);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || turn-- > 0)
            continue;
        CPU_ZERO(&allowed);
        CPU_SET(cpu, &allowed);
        if (sched_setaffinity(0, sizeof allowed, &allowed) != 0)
            cannot("bind a rank to its CPU");
        return;
    }
}

bool first_of_a_launch(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return true;
}
