/*
 * Repeated measurements of one quantity.
 */
#ifndef BENCH_COMMON_SERIES_H
#define BENCH_COMMON_SERIES_H

#include <stddef.h>

double least(const double *samples, size_t count);
double most(const double *samples, size_t count);
double mean(const double *samples, size_t count);

/* The middle one, or the mean of the two middle ones. */
double median(const double *samples, size_t count);

/* From when to when a team worked, in seconds of wall_seconds. */
struct span {
    double start;
    double end;
};

/* From when the first team began to when the last one ended. */
double wall_time(const struct span *teams, size_t count);

/* Prints [a,b,...]. */
void print_json_samples(const double *samples, size_t count);

/*
 * Prints {"best":...,"median":...,"samples":[...]}.  The caller says what is
 * best, as for a rate it is the most and for a time the least.
 */
void print_json_series(double best, const double *samples, size_t count);

#endif
