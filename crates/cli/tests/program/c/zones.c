// Nested teams, with sizes from the environment, that synchronise often: each of the outer threads opens a team the given number of times, whose
// threads work the given number of microseconds.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void work(double us) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1e6 + (now.tv_nsec - begin.tv_nsec) / 1e3 < us);
}

int main(int count, char **words) {
    int times = count > 1 ? atoi(words[1]) : 100;
    double us = count > 2 ? atof(words[2]) : 100;
    omp_set_max_active_levels(2);
#pragma omp parallel
    for (int at = 0; at < times; at++) {
#pragma omp parallel
        work(us / omp_get_num_threads());
    }
    puts("zones are done");
    return 0;
}
