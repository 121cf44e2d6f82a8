/* Threads that want a CPU until standard input ends; prints "ready" when all run. With a second word, that number of threads
   is started and joined in sequence first, by a thread that is not the initial one: a storm. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int over;
static pthread_barrier_t all;

static void *spin(void *unused) {
    pthread_barrier_wait(&all);
    while (!over) {
        for (volatile int i = 0; i < 10000; i++) {
        }
    }
    return unused;
}

static void *nothing(void *unused) {
    return unused;
}

static void *storm(void *count) {
    pthread_t thread;
    for (int i = 0; i < *(int *)count; i++) {
        if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) {
            exit(1);
        }
    }
    return count;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 1;
    int first = count > 2 ? atoi(words[2]) : 0;
    pthread_t thread;
    if (first > 0 && (pthread_create(&thread, NULL, storm, &first) != 0 || pthread_join(thread, NULL) != 0)) {
        return 1;
    }
    pthread_barrier_init(&all, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_create(&thread, NULL, spin, NULL);
        pthread_detach(thread);
    }
    pthread_barrier_wait(&all);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    over = 1;
    return 9;
}
