/* astray threads|machine|processes HOME:START...: for each pair a thread, one named as QEMU names those of its CPUs, or a process, that fills memory while on CPU HOME, so that it lies
   on its node, and is then put on CPU START and may run on all CPUs of the program. All use their memory until standard input
   ends, and sleep three fifths of the time, since all CPUs of an emulated machine share one. Prints "TID HOME" for each.
   The memory of number i is at BASE + (i << 32), where testbed/numacount.c knows it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BASE 0x100000000000ul
enum { LINE = 64, BYTES = 8 << 20, STRETCH = 1 << 19 };

struct place {
    unsigned long number;
    int home, start;
    char name[16];
};

static cpu_set_t whole;

static void go(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) exit(3);
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *work(void *what) {
    struct place *place = what;
    if (*place->name) pthread_setname_np(pthread_self(), place->name);
    go(place->home);
    void *where = (void *)(BASE + (place->number << 32));
    volatile char *memory = mmap(where, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != where) exit(4);
    for (unsigned long at = 0; at < BYTES; at += 4096) memory[at] = 1;
    go(place->start);
    if (sched_setaffinity(0, sizeof whole, &whole)) exit(5);
    char line[64];
    int length = snprintf(line, sizeof line, "%ld %d\n", syscall(SYS_gettid), place->home);
    if (write(1, line, (size_t)length) != length) exit(6);
    long since = now();
    for (unsigned long at = 0;; at = (at + LINE) % BYTES) {
        (void)memory[at];
        if (at % STRETCH == 0) {
            long used = now() - since;
            struct timespec nap = {0, used < 200000000 ? 3 * used / 2 : 300000000};
            nanosleep(&nap, NULL);
            since = now();
        }
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 3 || sched_getaffinity(0, sizeof whole, &whole)) return 1;
    int processes = !strcmp(words[1], "processes");
    for (int i = 2; i < count; i++) {
        struct place *place = calloc(1, sizeof *place);
        place->number = (unsigned long)i - 2;
        if (sscanf(words[i], "%d:%d", &place->home, &place->start) != 2) return 2;
        if (!strcmp(words[1], "machine")) snprintf(place->name, sizeof place->name, "CPU %d/TCG", (i - 2) % 100);
        pthread_t thread;
        if (!processes)
            pthread_create(&thread, NULL, work, place);
        else if (fork() == 0)
            work(place);
    }
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    if (processes) {
        signal(SIGTERM, SIG_IGN);
        kill(0, SIGTERM);
        while (wait(NULL) > 0) {
        }
    }
    return 9;
}
