/*
 * Repeated measurements.  See series.h.
 */
#include "common/series.h"

#include "common/memory.h"
#include "common/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double least(const double *samples, size_t count)
{
    double found = samples[0];
    for (size_t i = 1; i < count; i++)
        if (samples[i] < found)
            found = samples[i];
    return found;
}

double most(const double *samples, size_t count)
{
    double found = samples[0];
    for (size_t i = 1; i < count; i++)
        if (samples[i] > found)
            found = samples[i];
    return found;
}

double mean(const double *samples, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += samples[i];
    return sum / (double)count;
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

double median(const double *samples, size_t count)
{
    double *sorted = allocate_untouched(count, sizeof *sorted);
    memcpy(sorted, samples, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    const double middle = 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
    release(sorted, count, sizeof *sorted);
    return middle;
}

double wall_time(const struct span *teams, size_t count)
{
    double start = teams[0].start;
    double end = teams[0].end;
    for (size_t i = 1; i < count; i++) {
        if (teams[i].start < start)
            start = teams[i].start;
        if (teams[i].end > end)
            end = teams[i].end;
    }
    return end - start;
}

void print_json_samples(const double *samples, size_t count)
{
    putchar('[');
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            putchar(',');
        print_json_number(samples[i]);
    }
    putchar(']');
}

void print_json_series(double best, const double *samples, size_t count)
{
    printf("{\"best\":");
    print_json_number(best);
    printf(",\"median\":");
    print_json_number(median(samples, count));
    printf(",\"samples\":");
    print_json_samples(samples, count);
    putchar('}');
}
