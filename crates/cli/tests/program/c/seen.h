/* Mask of a thread. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The calling thread's mask as a list, into `text`. Uses a system call: the C library returns the run's mask
   to a thread on a slot. */
static const char *mask(char *text) {
    cpu_set_t set;
    char *end = text;
    *text = 0;
    CPU_ZERO(&set);
    if (syscall(SYS_sched_getaffinity, 0, sizeof set, &set) < 0) return "?";
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            int last = cpu;
            while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) last++;
            end += sprintf(end, last > cpu ? "%s%d-%d" : "%s%d", *text ? "," : "", cpu, last);
            cpu = last;
        }
    return text;
}
