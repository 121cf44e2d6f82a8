/* follows KIND FIRST SECOND: fills 24 MiB while on CPU FIRST and 72 MiB while on CPU SECOND, then may run anywhere, on CPU
 * FIRST, prints the start addresses of these areas, and uses both until it is killed. KIND: own, shared (without a file), policy (of memory, for
 * the whole program), area (for one area), thread (for another thread), huge (pages that were set aside, one MiB rounded up).
 * Prints "cannot ..." if the machine lacks it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PREFERRED = 1, BIND = 2 };
static const char *kind;
static int first;

static int is(const char *word) { return !strcmp(kind, word); }

static int go(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

static volatile char *filled(int cpu, size_t bytes) {
    int flags = (is("shared") ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | (is("huge") ? MAP_HUGETLB : 0);
    size_t page = is("huge") ? 2u << 20 : 4096;
    if (go(cpu)) return NULL;
    /* With an inaccessible page on either side: the kernel merges equal neighbours into one entry. */
    mmap(NULL, page, PROT_NONE, flags & ~MAP_HUGETLB, -1, 0);
    volatile char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    mmap(NULL, page, PROT_NONE, flags & ~MAP_HUGETLB, -1, 0);
    madvise((void *)memory, bytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < bytes; at += page) memory[at] = 1;
    return memory;
}

static void *idle(void *said) {
    unsigned long node = 1;
    /* No effect except that it is set. */
    *(long *)said = syscall(SYS_set_mempolicy, PREFERRED, &node, 65);
    pause();
    return NULL;
}

int main(int count, char **words) {
    size_t few = 24u << 20, many = 72u << 20;
    cpu_set_t all;
    if (count != 4 || sched_getaffinity(0, sizeof all, &all)) return 1;
    kind = words[1];
    first = atoi(words[2]);
    if (is("huge")) few = many = 4u << 20;
    volatile char *here = filled(first, few), *there = filled(atoi(words[3]), many);
    unsigned long nodes = 3;
    volatile long failed = here && there ? 0 : -1;
    if (!failed && is("policy")) failed = syscall(SYS_set_mempolicy, BIND, &nodes, 65);
    if (!failed && is("area")) failed = syscall(SYS_mbind, there, many, PREFERRED, &nodes, 65, 0);
    if (!failed && is("thread")) {
        pthread_t thread;
        failed = 1;
        if (pthread_create(&thread, NULL, idle, (void *)&failed)) return 2;
        while (failed > 0) sched_yield();
    }
    if (failed || go(first) || sched_setaffinity(0, sizeof all, &all)) {
        puts("cannot do that here");
        return 0;
    }
    printf("%lx %lx\n", (unsigned long)here, (unsigned long)there);
    fflush(stdout);
    for (;;) {
        for (size_t at = 0; at < few; at += 4096) here[at]++;
        for (size_t at = 0; at < many; at += 4096) there[at]++;
    }
}
