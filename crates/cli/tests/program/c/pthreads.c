/* Creates three threads that all live at once, and prints for each, in order of creation, its initial mask and
   its CPU. */
#include "seen.h"
#include <pthread.h>

static pthread_barrier_t all;
static char lines[3][8400];

static void *born(void *line) {
    char text[8192];
    sprintf(line, "mask %s cpu %d", mask(text), sched_getcpu());
    pthread_barrier_wait(&all);
    return 0;
}

int main(void) {
    pthread_t threads[3];
    char text[8192];
    pthread_barrier_init(&all, 0, 3);
    for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, born, lines[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < 3; i++) puts(lines[i]);
    printf("main %s\n", mask(text));
    return 0;
}
