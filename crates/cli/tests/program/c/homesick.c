/* homesick HOME:START...: a thread for each pair, begun on CPU START and free to go where the program may; says "TID HOME" of each,
   and computes until standard input ends. On CPU HOME a thread gets many pages for its time, elsewhere few: time a page is what a
   thread suffers from its place, as cycles a request are on a machine with several memory nodes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, MANY = 32 };

static volatile int over;
static cpu_set_t whole;
static pthread_barrier_t all;

struct place {
    int home, start;
};

static void *work(void *what) {
    struct place *place = what;
    cpu_set_t start;
    CPU_ZERO(&start);
    CPU_SET(place->start, &start);
    char *memory = mmap(NULL, MANY * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%ld %d\n", syscall(SYS_gettid), place->home);
    pthread_barrier_wait(&all);
    /* Only now: the kernel chooses the CPU of a thread that wakes from a barrier. */
    if (memory == MAP_FAILED || sched_setaffinity(0, sizeof start, &start) || sched_setaffinity(0, sizeof whole, &whole)) exit(3);
    while (!over) {
        int pages = sched_getcpu() == place->home ? MANY : 1;
        for (int at = 0; at < pages; at++) memory[at * PAGE] = 1;
        madvise(memory, (size_t)pages * PAGE, MADV_DONTNEED);
        for (volatile int i = 0; i < 20000; i++) {
        }
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 2 || sched_getaffinity(0, sizeof whole, &whole)) return 1;
    struct place *places = calloc((size_t)count, sizeof *places);
    pthread_barrier_init(&all, NULL, (unsigned)count);
    for (int i = 1; i < count; i++) {
        pthread_t thread;
        if (sscanf(words[i], "%d:%d", &places[i].home, &places[i].start) != 2) return 2;
        pthread_create(&thread, NULL, work, &places[i]);
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
