/*
 * Meter of other load during a run: the CPU time of all processes, of this
 * process and of the given hogs, and the time that a hypervisor took.
 */
#ifndef BENCH_BALANCE_METER_H
#define BENCH_BALANCE_METER_H

#include "balance/options.h"

struct meter {
    double busy;  /* of all CPUs of the machine, in clock ticks of 10 ms */
    double steal; /* the same, of what was taken from them */
    double own;   /* of this process */
    double hogs;  /* of those processes */
    long cpus;    /* online */
};

/* Reads all values; a value that cannot be read stays negative. */
struct meter read_meter(const struct counts *hogs);

/* Prints the differences as members of a JSON object; null for a value that could not be
 * read. */
void print_meters(const struct meter *before, const struct meter *after);

#endif
