/* placed KIND HOME:START...: for each pair memory that was written on CPU HOME, and a thread that reads and writes it, begun on CPU
   START and free to run on all CPUs of the program. KIND says whose memory and what threads are:
     threads    own memory, in one process
     processes  own memory, a process each
     huge       as processes, on transparent huge pages
     shared     one area, written on the first HOME, shared by processes (memfd)
     file       as processes, of a file that is mapped (a new one in the current folder, removed at once)
     read       as file, but read by read(2): it lies in the page cache alone
   Prints "TID ADDRESS" for each when all have begun (0 where nothing is mapped), and computes until standard input ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 24 << 20, LINE = 64, PIECE = 1 << 16 };

static const char *kind;
static cpu_set_t whole;
static int common = -1;

static int is(const char *word) { return !strcmp(kind, word); }

static void go(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) exit(3);
}

static int own_file(void) {
    char name[] = "placed.XXXXXX";
    int file = mkstemp(name);
    if (file < 0 || unlink(name) || ftruncate(file, BYTES)) exit(4);
    return file;
}

struct place {
    int home, start;
};

static void *work(void *what) {
    struct place *place = what;
    go(place->home);
    int file = is("shared") ? common : is("file") || is("read") ? own_file() : -1;
    volatile char *memory = NULL;
    static __thread char piece[PIECE];
    if (is("read")) {
        for (int at = 0; at < BYTES; at += PIECE)
            if (write(file, piece, PIECE) != PIECE) exit(5);
    } else {
        int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        /* With an inaccessible page on either side: the kernel merges equal neighbours into one entry of numa_maps. */
        char *room = mmap(NULL, BYTES + (4 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) exit(6);
        room += (2 << 20) - (unsigned long)room % (2 << 20);
        memory = mmap(room, BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0);
        if (memory == MAP_FAILED) exit(6);
        madvise((void *)memory, BYTES, is("huge") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        for (int at = 0; at < BYTES; at += 4096) memory[at] = 1;
    }
    go(place->start);
    if (sched_setaffinity(0, sizeof whole, &whole)) exit(7);
    char line[64];
    int length = snprintf(line, sizeof line, "%ld %lx\n", syscall(SYS_gettid), (unsigned long)memory);
    if (write(1, line, (size_t)length) != length) exit(8);
    for (;;) {
        if (is("read"))
            for (int at = 0; at < BYTES; at += PIECE) (void)!pread(file, piece, PIECE, at);
        else
            for (int at = 0; at < BYTES; at += LINE) memory[at]++;
    }
}

int main(int count, char **words) {
    if (count < 3 || sched_getaffinity(0, sizeof whole, &whole)) return 1;
    kind = words[1];
    if (is("shared")) {
        common = memfd_create("placed", 0);
        if (common < 0 || ftruncate(common, BYTES)) return 2;
    }
    for (int i = 2; i < count; i++) {
        struct place *place = calloc(1, sizeof *place);
        if (sscanf(words[i], "%d:%d", &place->home, &place->start) != 2) return 2;
        pthread_t thread;
        if (is("threads")) {
            pthread_create(&thread, NULL, work, place);
        } else if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(place);
        }
    }
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
