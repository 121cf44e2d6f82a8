// Synchronises the given number of times, after the given microseconds of work each time, and prints the count and the
// least and greatest mean interval in nanoseconds by its own clock. With OpenMP: barriers inside a region, and as many regions. With MPI: collective calls. With a team of trimtab's: barriers,
// and calls that were started.
// Else: a barrier of POSIX threads, between two.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined(MEETS_MPI)
#include <mpi.h>
#elif defined(MEETS_TEAM)
#include <pthread.h>
#include <stdint.h>
#include <trimtab/team.h>
#elif !defined(_OPENMP)
#include <pthread.h>
#endif

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void work(double us) {
    double until = now() + 1e3 * us;
    while (now() < until) {
    }
}

static int times;
static double us;

#if defined(MEETS_MPI)
static double begin, end;
static void meet(void) {
    double one = 1, sum;
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    // Before the first call: a process that loses its CPU behind it would measure too short a time.
    begin = now();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int at = 0; at < times; at++) {
        work(us);
        switch (at % 3) {
        case 0: MPI_Barrier(MPI_COMM_WORLD); break;
        case 1: MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
        default: MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        }
    }
    end = now();
    if (rank == 0) {
        printf("%d %.0f %.0f\n", times, 1e3 * us, (end - begin) / times);
    }
    MPI_Finalize();
}
#elif defined(MEETS_TEAM)
static trimtab_team team;
static double begin;
static void ok(int code) {
    if (code != TRIMTAB_OK) {
        fprintf(stderr, "%s: %s\n", trimtab_error_text(code), trimtab_last_error());
        exit(1);
    }
}
static void *member(void *number) {
    trimtab_rank rank;
    trimtab_request request;
    double one = 1, sum = 0;
    struct trimtab_collective call = {.size = sizeof call, .kind = TRIMTAB_ALLREDUCE, .type = TRIMTAB_F64, .sync = TRIMTAB_MINE,
                                      .count = 1, .input = &one, .output = &sum};
    ok(trimtab_team_join(team, (intptr_t)number, &rank));
    ok(trimtab_barrier(rank));
    if (number == NULL) {
        begin = now();
    }
    for (int at = 0; at < times; at++) {
        work(us);
        switch (at % 3) {
        case 0: ok(trimtab_barrier(rank)); break;
        case 1: ok(trimtab_allreduce(rank, &one, &sum, 1, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE)); break;
        default:
            ok(trimtab_start(rank, &call, &request));
            ok(trimtab_wait(rank, request));
        }
    }
    double end = now();
    if (number == NULL) {
        printf("%d %.0f %.0f\n", times, 1e3 * us, (end - begin) / times);
    }
    ok(trimtab_rank_leave(rank));
    return NULL;
}
static void meet(void) {
    pthread_t other;
    struct trimtab_team_options options;
    ok(trimtab_team_options_init(&options, 2));
    ok(trimtab_team_new(&options, &team));
    pthread_create(&other, NULL, member, (void *)1);
    member(NULL);
    pthread_join(other, NULL);
}
#elif defined(_OPENMP)
static void meet(void) {
    double begin = now();
#pragma omp parallel num_threads(2)
    for (int at = 0; at < times; at++) {
        work(us);
#pragma omp barrier
    }
    for (int at = 0; at < times; at++) {
#pragma omp parallel num_threads(2)
        work(us);
    }
    // Also the end of the first region.
    printf("%d %.0f %.0f\n", 2 * times + 1, 1e3 * us * 2 * times / (2 * times + 1), (now() - begin) / (2 * times + 1));
}
#else
static pthread_barrier_t barrier;
static double begin;
static void *member(void *first) {
    // Before the first wait: a thread that loses its CPU behind it would measure too short a time.
    if (first) {
        begin = now();
    }
    pthread_barrier_wait(&barrier);
    for (int at = 0; at < times; at++) {
        work(us);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}
static void meet(void) {
    pthread_t other;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&other, NULL, member, NULL);
    member(&barrier);
    printf("%d %.0f %.0f\n", times, 1e3 * us, (now() - begin) / times);
    pthread_join(other, NULL);
}
#endif

int main(int count, char **words) {
    times = count > 1 ? atoi(words[1]) : 100;
    us = count > 2 ? atof(words[2]) : 100;
    meet();
    fflush(stdout);
    if (count > 3) {
        // The test that kills it waits for this.
        for (;;) {
            work(1e3);
        }
    }
    return 0;
}
