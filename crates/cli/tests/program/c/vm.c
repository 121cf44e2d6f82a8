/* Stands for the monitor of a virtual machine: two threads that want a CPU, named as QEMU names those of its CPUs, and a third that is
   not a CPU. Prints "ready" when all run; ends with its input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int over;
static pthread_barrier_t all;

static void *spin(void *name) {
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&all);
    while (!over) {
        for (volatile int i = 0; i < 10000; i++) {
        }
    }
    return NULL;
}

int main(void) {
    static char names[][16] = {"CPU 0/TCG", "CPU 1/TCG", "worker"};
    pthread_t threads[3];
    pthread_barrier_init(&all, NULL, 4);
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&threads[i], NULL, spin, names[i]) != 0) return 1;
    }
    pthread_barrier_wait(&all);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return 0;
}
