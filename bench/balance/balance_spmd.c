/*
 * Equal threads with barriers, as POSIX threads.
 *
 * Problem: N threads do the same work on C cores, cut into phases by barriers;
 * the total time shows how fairly the threads share the cores, and the cost of
 * waiting.  Method: a dependent chain of integer steps (work.h), so that CPU
 * time is progress; a central barrier whose waiters wait as an option says
 * (barrier.h); optionally thread i is bound to CPU i mod C, as OpenMP and MPI
 * bind.  Memory: three cache lines for each thread.
 */
#define _GNU_SOURCE

#include "balance/barrier.h"
#include "balance/clock.h"
#include "balance/spmd.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static struct spmd spmd = {
    .program = {"balance_spmd", "equal threads with barriers"}, .threads = 3, .work = 1.0};
static int wait_kind = WAIT_SLEEP;
static bool pinned;
static struct barrier phases;
static pthread_barrier_t gate; /* all threads start after the meters are read */
static struct worker *workers;

/* Binds the calling thread to one CPU of the process's mask, by its number. */
static void bind_this_thread(long long number)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    long long left = number % CPU_COUNT(&all);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && left-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static void *run(void *argument)
{
    struct worker *worker = argument;
    const long long number = worker - workers;
    if (pinned)
        bind_this_thread(number);
    spmd_enter(worker, (uint64_t)number);
    pthread_barrier_wait(&gate); /* all are there */
    pthread_barrier_wait(&gate); /* and may begin */
    for (uint64_t phase = 0; phase < spmd.phases; phase++) {
        spmd_phase(&spmd, worker);
        barrier_wait(&phases);
    }
    spmd_leave(worker);
    return NULL;
}

int main(int argc, char **argv)
{
    const struct balance_option more[] = {
        {"--wait", "how threads wait at barriers", OPTION_WORD, &wait_kind, 0, 0, wait_words},
        {"--pin", "bind thread i to CPU i modulo the CPUs", OPTION_FLAG, &pinned, 0, 0, NULL},
    };
    spmd_begin(&spmd, more, sizeof more / sizeof more[0], argc, argv);
    const size_t threads = (size_t)spmd.threads;
    phases = (struct barrier){.threads = (unsigned)threads, .wait = (enum wait)wait_kind};
    workers = aligned_alloc(_Alignof(struct worker), threads * sizeof *workers);
    pthread_t *handles = calloc(threads, sizeof *handles);
    if (workers == NULL || handles == NULL ||
        pthread_barrier_init(&gate, NULL, (unsigned)threads + 1) != 0)
        give_up(&spmd.program, "not enough memory");
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&handles[i], NULL, run, &workers[i]) != 0)
            give_up(&spmd.program, "cannot start all threads");

    pthread_barrier_wait(&gate);
    const struct meter before = read_meter(&spmd.hogs);
    const double began = seconds_of(CLOCK_MONOTONIC);
    pthread_barrier_wait(&gate);
    for (size_t i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    const double seconds = seconds_of(CLOCK_MONOTONIC) - began;
    const struct meter after = read_meter(&spmd.hogs);

    const int status = spmd_report(&spmd, workers, wait_words[wait_kind], pinned, began, seconds,
                                   &before, &after);
    free(handles);
    free(workers);
    return status;
}
