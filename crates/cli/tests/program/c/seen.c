/* Says what the process may use: its mask, and what the C library answers. Takes nothing from outside the C library. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int main(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    printf("mask ");
    for (int cpu = 0, first = 1; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            int last = cpu;
            while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) last++;
            printf(last > cpu ? "%s%d-%d" : "%s%d", first ? "" : ",", cpu, last);
            first = 0, cpu = last;
        }
    printf("\nonline %ld\nnprocs %d\nuid %d euid %d\n", sysconf(_SC_NPROCESSORS_ONLN), get_nprocs(), getuid(), geteuid());
    return 0;
}
