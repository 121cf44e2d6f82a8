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

/* Start and end of a team's work, in seconds of wall_seconds. */
struct span {
    double start;
    double end;
};

/* Time from the start of the first team to the end of the last one. */
double wall_time(const struct span *teams, size_t count);

/* Prints [a,b,...]. */
void print_json_samples(const double *samples, size_t count);

/*
 * Prints {"best":...,"median":...,"samples":[...]}.  The caller gives the best
 * value: the largest for a rate, the smallest for a time.
 */
void print_json_series(double best, const double *samples, size_t count);

#endif
