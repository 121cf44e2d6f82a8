// After many short regions, binds its initial thread to a CPU, and prints its mask at that moment, when it
// asks for it, and after another region.
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void print(const char *name)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    syscall(SYS_sched_getaffinity, 0, sizeof mask, &mask);
    int cpu = 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &mask))
        cpu++;
    printf("%s %d%s\n", name, cpu, CPU_COUNT(&mask) > 1 ? ",more" : "");
}

int main(int argc, char **argv)
{
    cpu_set_t own;
    for (int i = 0; i < 200; i++) {
#pragma omp parallel num_threads(2)
        __asm__ volatile("");
    }
    CPU_ZERO(&own);
    CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &own);
    sched_setaffinity(0, sizeof own, &own);
    print("set");
    cpu_set_t asked;
    sched_getaffinity(0, sizeof asked, &asked);
    print("asked");
    usleep(2000);
#pragma omp parallel num_threads(2)
    usleep(2000);
    print("later");
    return 0;
}
