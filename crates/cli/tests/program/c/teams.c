// Teams of two in teams of two, or with -DFREE of as many threads as the environment says: each thread prints its path
// and its mask as the kernel has it. The thread that opens everything prints its own, as the C library says, before and
// after.
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef FREE
#define TWO
#else
#define TWO num_threads(2)
#endif

static void print(const char *name, const cpu_set_t *mask)
{
    char text[256] = "";
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask) && strlen(text) < 240)
            sprintf(text + strlen(text), "%s%d", *text ? "," : "", cpu);
#pragma omp critical
    printf("%s %s\n", name, text);
}

static void mine(const char *name)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    syscall(SYS_sched_getaffinity, 0, sizeof mask, &mask);
    print(name, &mask);
}

static void asked(const char *name)
{
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    print(name, &mask);
}

int main(void)
{
    asked("before");
#pragma omp parallel TWO
    {
        char name[16];
        int outer = omp_get_thread_num();
        snprintf(name, sizeof name, "%d", outer);
        mine(name);
#pragma omp parallel TWO private(name)
        {
            snprintf(name, sizeof name, "%d.%d", outer, omp_get_thread_num());
            mine(name);
        }
    }
    asked("after");
    return 0;
}
