// Threads of POSIX: each adds its share; prints the sum and how many CPUs they might use.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2, ROUNDS = 800000000 };

static void *work(void *argument) {
    unsigned long begin = (unsigned long)argument, sum = 0;
    for (unsigned long i = begin; i < ROUNDS; i += THREADS)
        sum += i ^ (sum >> 3);
    return (void *)sum;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned long sum = 0;
    for (unsigned long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            return 1;
    for (int i = 0; i < THREADS; i++) {
        void *part;
        pthread_join(threads[i], &part);
        sum += (unsigned long)part;
    }
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    printf("sum %lu, %d CPUs\n", sum, CPU_COUNT(&mask));
    return 0;
}
