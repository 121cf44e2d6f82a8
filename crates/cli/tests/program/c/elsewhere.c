/* elsewhere HOME CPU: fills memory while on CPU HOME, goes to the other CPU, prints a line, and uses that memory there until it is killed. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int go(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

int main(int count, char **words) {
    size_t bytes = 32u << 20;
    if (count != 3 || go(atoi(words[1]))) return 1;
    volatile char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    if (go(atoi(words[2]))) return 3;
    puts("there");
    fflush(stdout);
    for (;;)
        for (size_t at = 0; at < bytes; at += 4096) memory[at]++;
}
