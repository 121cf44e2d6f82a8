/*
 * Equal threads.  See spmd.h.
 */
#define _GNU_SOURCE

#include "balance/spmd.h"

#include "balance/clock.h"
#include "balance/work.h"
#include "common/output.h"
#include "common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define OPTIONS_MAX 16

static bool calibrating(const struct spmd *spmd)
{
    if (spmd->calibrate)
        printf("{\"kernel\":\"%s\",\"rate\":%.0f}\n", spmd->program.name, spmd->rate);
    return spmd->calibrate;
}

void spmd_begin(struct spmd *spmd, const struct balance_option *more, size_t count, int argc,
                char **argv)
{
    struct balance_option options[OPTIONS_MAX] = {
        {"--threads", "how many threads", OPTION_COUNT, &spmd->threads, 1, THREADS_MAX, NULL},
        {"--work", "CPU seconds of work a thread", OPTION_NUMBER, &spmd->work, 1e-6, 3600, NULL},
        {"--phase", "CPU seconds between two barriers, 0 for one barrier at the end",
         OPTION_NUMBER, &spmd->phase, 0, 3600, NULL},
        {"--rate", "steps of work a second, as --calibrate says; measured if not given",
         OPTION_NUMBER, &spmd->rate, 1, 1e12, NULL},
        {"--calibrate", "measure the rate, print it, and end", OPTION_FLAG, &spmd->calibrate, 0, 0,
         NULL},
        {"--hog", "a process whose CPU time is not foreign; can be repeated", OPTION_COUNTS,
         &spmd->hogs, 1, 4194304, NULL},
    };
    size_t all = 6;
    for (size_t i = 0; i < count && all < OPTIONS_MAX; i++)
        options[all++] = more[i];
    parse_options(&spmd->program, options, all, argc, argv);
    if (spmd->rate == 0.0)
        spmd->rate = work_rate();
    if (calibrating(spmd))
        exit(finish_output(true));
    const double phase = spmd->phase > 0.0 && spmd->phase < spmd->work ? spmd->phase : spmd->work;
    spmd->phases = (uint64_t)(spmd->work / phase + 0.5);
    spmd->steps = (uint64_t)(phase * spmd->rate + 0.5);
}

void spmd_enter(struct worker *worker, uint64_t number)
{
    memset(worker, 0, sizeof *worker);
    worker->state = number + 1;
    worker->cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

void spmd_phase(const struct spmd *spmd, struct worker *worker)
{
    const double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    worker->state = work(worker->state, spmd->steps);
    worker->compute += seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
    worker->arrived = seconds_of(CLOCK_MONOTONIC);
}

void spmd_leave(struct worker *worker)
{
    struct rusage usage;
    worker->cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - worker->cpu;
    if (getrusage(RUSAGE_THREAD, &usage) == 0) {
        worker->voluntary = usage.ru_nvcsw;
        worker->involuntary = usage.ru_nivcsw;
    }
}

static void print_times(const char *name, const struct spmd *spmd, const struct worker *workers,
                        double (*time)(const struct worker *))
{
    printf(",\"%s\":[", name);
    for (long long i = 0; i < spmd->threads; i++)
        printf("%s%.6f", i == 0 ? "" : ",", time(&workers[i]));
    printf("]");
}

static double compute_time(const struct worker *worker)
{
    return worker->compute;
}

static double cpu_time(const struct worker *worker)
{
    return worker->cpu;
}

int spmd_report(const struct spmd *spmd, const struct worker *workers, const char *wait,
                bool pinned, double began, double seconds, const struct meter *before,
                const struct meter *after)
{
    uint64_t sum = 0;
    uint64_t expected = 0;
    long long voluntary = 0;
    long long involuntary = 0;
    double first = workers[0].arrived;
    double last = workers[0].arrived;
    for (long long i = 0; i < spmd->threads; i++) {
        sum += workers[i].state;
        expected += work_expected((uint64_t)i + 1, spmd->phases * spmd->steps);
        voluntary += workers[i].voluntary;
        involuntary += workers[i].involuntary;
        first = workers[i].arrived < first ? workers[i].arrived : first;
        last = workers[i].arrived > last ? workers[i].arrived : last;
    }
    const bool verified = sum == expected;
    printf("{\"kernel\":\"%s\",\"threads\":%lld,\"wait\":\"%s\",\"pinned\":%s,\"phases\":%llu",
           spmd->program.name, spmd->threads, wait, pinned ? "true" : "false",
           (unsigned long long)spmd->phases);
    printf(",\"seconds\":%.6f,\"first\":%.6f,\"last\":%.6f", seconds, first - began, last - began);
    print_times("compute_seconds", spmd, workers, compute_time);
    print_times("cpu_seconds", spmd, workers, cpu_time);
    printf(",\"voluntary\":%lld,\"involuntary\":%lld,\"machine_cpus\":%ld", voluntary, involuntary,
           after->cpus);
    print_meters(before, after);
    printf(",\"sum\":\"%016llx\",\"verified\":%s}\n", (unsigned long long)sum,
           verified ? "true" : "false");
    return finish_output(verified);
}
