/*
 * Timing, verifying and reporting of the kernels.  See kernel.h.
 */
#define _GNU_SOURCE

#include "team/kernels/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The kernel counts a machine's CPU time in ticks of 10 ms: shares of it are computed over at least ten. */
#define WINDOW 0.1
#define TIMES_MAX 100000

/* Numbers that each rank reports for a repetition. */
enum { TOLD_SECONDS, TOLD_WAITED, TOLD_CPU, TOLD_COUNT };

const struct kernel_program *kernel_of(const struct job *job)
{
    static const struct kernel_program *const kernels[KERNEL_COUNT] = {&kernel_ft, &kernel_is, &kernel_ep,
                                                                         &kernel_cg, &kernel_mg};
    return kernels[job->kernel];
}

static size_t bytes_of(size_t count, size_t size)
{
    return count * size > 0 ? count * size : 1;
}

void *fresh(size_t count, size_t size)
{
    const size_t bytes = bytes_of(count, size);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        cannot("get memory for the kernel");
    return memory;
}

void give_back(void *memory, size_t count, size_t size)
{
    munmap(memory, bytes_of(count, size));
}

struct parcels make_parcels(int ranks)
{
    const size_t count = (size_t)ranks;
    size_t *sizes = fresh(4 * count, sizeof *sizes);
    return (struct parcels){.send_at = sizes,
                            .send = sizes + count,
                            .take_at = sizes + 2 * count,
                            .take = sizes + 3 * count,
                            .arrived = fresh(count, sizeof(unsigned char *))};
}

int first_of(int n, int r, int ranks)
{
    return (int)((long long)n * r / ranks);
}

/* ---- Operations called by kernels ----------------------------------------- */

void all_wait(struct rank *rank)
{
    const double began = now();
    rank->ways->barrier(rank);
    rank->waited += now() - began;
}

void all_sum(struct rank *rank, const void *in, void *out, size_t count, enum number type)
{
    const double began = now();
    rank->ways->sum(rank, in, out, count, type);
    rank->waited += now() - began;
}

void all_to_all(struct rank *rank, const void *in, void *out, size_t bytes)
{
    const double began = now();
    rank->ways->alltoall(rank, in, out, bytes);
    rank->waited += now() - began;
}

void exchange(struct rank *rank, struct parcels *parcels)
{
    const double began = now();
    rank->ways->exchange(rank, parcels);
    rank->waited += now() - began;
}

void exchange_is_over(struct rank *rank)
{
    const double began = now();
    rank->ways->over(rank);
    rank->waited += now() - began;
}

/* ---- A run ---------------------------------------------------------------- */

/* CPU time of this rank, including all threads of its library. */
static double cpu_time(const struct ways *ways)
{
    return seconds_of(ways->processes ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID);
}

/* A repetition, of all ranks. */
struct repetition {
    double seconds; /* of the slowest rank */
    double waited;  /* in calls of the library, on average */
    double cpu;     /* of all ranks */
    double foreign; /* part of the machine that others used; negative if that cannot be told */
};

/* Runs the kernel `times` times. */
static struct repetition timed(const struct kernel_program *kernel, struct rank *rank, void *state, int times,
                               double *all)
{
    const int ranks = rank->job->ranks;
    struct repetition result = {0};

    rank->ways->barrier(rank);
    const double busy_began = machine_busy();
    const double waited = rank->waited;
    const double cpu_began = cpu_time(rank->ways);
    const double began = now();
    for (int time = 0; time < times; time++)
        kernel->repeat(rank, state);
    const double told[TOLD_COUNT] = {now() - began, rank->waited - waited, cpu_time(rank->ways) - cpu_began};
    rank->ways->gather(rank, told, TOLD_COUNT, all);
    const double busy_ended = machine_busy();

    for (int i = 0; i < ranks; i++) {
        const double *of = all + i * TOLD_COUNT;
        result.seconds = of[TOLD_SECONDS] > result.seconds ? of[TOLD_SECONDS] : result.seconds;
        result.waited += of[TOLD_WAITED] / ranks;
        result.cpu += of[TOLD_CPU];
    }
    const double most = result.seconds * (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double others = (busy_ended - busy_began - result.cpu) / most;
    result.foreign = others < 0.0 ? 0.0 : others > 1.0 ? 1.0 : others;
    if (busy_began < 0.0 || busy_ended < 0.0 || result.seconds < WINDOW)
        result.foreign = -1.0;
    result.seconds /= times;
    result.waited /= times;
    result.cpu /= times;
    return result;
}

/* Number of runs that make a repetition as long as requested: the same at all ranks, which know the same times. */
static int calibrate(const struct kernel_program *kernel, struct rank *rank, void *state, double *all)
{
    const double wanted = rank->job->least_seconds;
    for (int times = 1; wanted > 0.0 && times <= TIMES_MAX; times *= 2) {
        const double took = timed(kernel, rank, state, times, all).seconds * times;
        if (took >= wanted / 2.0)
            return took < wanted ? (int)ceil(times * wanted / took) : times;
    }
    return wanted > 0.0 ? TIMES_MAX : 1;
}

/* Whether the value is true at all ranks: a faulty library need not be wrong at every
 * rank. */
static bool all_say(struct rank *rank, bool so, double *all)
{
    const double mine = so ? 1.0 : 0.0;
    double said = 0.0;
    rank->ways->gather(rank, &mine, 1, all);
    for (int i = 0; i < rank->job->ranks; i++)
        said += all[i];
    return said == (double)rank->job->ranks;
}

static void print(const struct kernel_program *kernel, const struct rank *rank, const struct repetition *result)
{
    const struct job *job = rank->job;
    printf("{\"peer\":\"%s\",\"kind\":\"%s\",\"ranks\":%d,\"kernel\":\"%s\",\"class\":\"%c\",\"mode\":\"%s\"",
           rank->ways->name, rank->ways->kind, job->ranks, kernel->word, problem_class_letter(job->problem_class),
           job->resident ? "resident" : "stream");
    printf(",\"seconds\":%.6f,\"comm_seconds\":%.6f,\"cpu_seconds\":%.6f,\"mops\":%.3f,\"foreign\":",
           result->seconds, result->waited, result->cpu,
           1e-6 * kernel->operations(job->problem_class) / result->seconds);
    if (result->foreign < 0.0)
        printf("null}\n");
    else
        printf("%.3f}\n", result->foreign);
    fflush(stdout);
}

int run_kernel(struct rank *rank)
{
    const struct job *job = rank->job;
    const struct kernel_program *kernel = kernel_of(job);
    double *all = fresh((size_t)job->ranks * TOLD_COUNT, sizeof *all);
    int status = TEAM_EXIT_DONE;

    if (job->pinned)
        pin(rank->me);
    void *state = kernel->prepare(rank);
    const int times = calibrate(kernel, rank, state, all);
    for (int repeat = 0; repeat < job->repeats && status == TEAM_EXIT_DONE; repeat++) {
        const struct repetition result = timed(kernel, rank, state, times, all);
        if (!all_say(rank, kernel->is_right(rank, state), all))
            status = TEAM_EXIT_WRONG_RESULT;
        else if (rank->me == 0)
            print(kernel, rank, &result);
    }
    if (rank->me == 0 && status == TEAM_EXIT_WRONG_RESULT)
        fprintf(stderr, "%s: wrong result of %s, class %c, with %d ranks\n", rank->ways->name, kernel->word,
                problem_class_letter(job->problem_class), job->ranks);
    if (rank->me == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        perror("team: cannot write the report");
        status = TEAM_EXIT_CANNOT_RUN;
    }
    /* Other ranks may still read this rank's memory until all have arrived
     * here. */
    rank->ways->barrier(rank);
    return status;
}
