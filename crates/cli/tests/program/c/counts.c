/* An OpenMP program that counts the mask of its initial thread, as libraries do, and has a team. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int seen(int process) {
    cpu_set_t mask;
    return sched_getaffinity(process, sizeof mask, &mask) ? -1 : CPU_COUNT(&mask);
}

int main(void) {
    cpu_set_t raw;
    int threads = 0;
    printf("before %d %d\n", seen(0), seen(getpid()));
#pragma omp parallel
#pragma omp atomic
    threads++;
    CPU_ZERO(&raw);
    syscall(SYS_sched_getaffinity, 0, sizeof raw, &raw);
    printf("after %d %d\nteam %d\nkernel %d\n", seen(0), seen(getpid()), threads, CPU_COUNT(&raw));
    return 0;
}
