/*
 * Verification and reporting.
 *
 * A kernel fills in a struct bench_report, calls print_heading before it
 * computes and finish_report when it is done.  The report comes either in
 * words, laid out like the reference NAS programs' so that existing scripts
 * can read it, or as one JSON object on one line.
 */
#ifndef BENCH_COMMON_REPORT_H
#define BENCH_COMMON_REPORT_H

#include "common/problem_class.h"

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses of every benchmark program. */
enum {
    BENCH_EXIT_VERIFIED = 0,
    BENCH_EXIT_WRONG_RESULT = 1, /* the computed values are not the reference values */
    BENCH_EXIT_BAD_USAGE = 2,    /* the command line was not understood */
    BENCH_EXIT_CANNOT_RUN = 3    /* no memory or threads, or the report could not be written */
};

/* A computed value and its reference.  Names are plain identifiers. */
struct bench_value {
    const char *name;
    double computed;
    double reference;
};

struct bench_report {
    const char *kernel; /* short upper-case name: "CG" */
    enum problem_class problem_class;
    long long size[3];     /* extents; the unused ones are 0 */
    int iterations;        /* 0 where the kernel has no such notion */
    int threads;           /* that took part, of all teams together */
    int outer;             /* size of the outer team; 0 where there is one level of threads */
    int inner;             /* size of its threads' own teams, on average; likewise */
    double setup_seconds;  /* before the timed section */
    double seconds;        /* the timed section */
    double mops;           /* millions of operations a second, all threads together */
    const char *operation; /* what is counted: "floating point" */
    bool verified;
    const struct bench_value *values;
    size_t value_count;
};

/* |computed - reference| / |reference|; NaN if computed is NaN. */
double relative_error(const struct bench_value *value);

/* True if every value is within the relative tolerance; a NaN never is. */
bool values_agree(const struct bench_value *values, size_t count, double tolerance);

/* Prints the facts known before the run: name, class, size, iterations,
 * threads. */
void print_heading(const struct bench_report *report);

/*
 * Prints the outcome in words or as JSON and returns the program's exit
 * status.
 */
int finish_report(const struct bench_report *report, bool json);

#endif
