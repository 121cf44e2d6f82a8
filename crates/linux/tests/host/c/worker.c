/* A program to be watched. It obeys lines on standard input and answers each with a line:
 *   threads N     starts N threads that compute a little and sleep a little; answers their numbers
 *   busy N        starts N threads that compute without a pause
 *   end           ends the thread that was started last
 *   storm N       starts N threads one after the other, each of which ends at once
 *   bind TID CPU  binds one of its threads to a CPU by itself
 *   name TEXT     renames the thread that was started last
 *   fork          starts a child process that waits; answers its number
 *   orphan        starts a child that starts a child and ends; answers the latter's number
 *   headless      ends the first thread; the others go on; neither this line nor a later one is answered
 * and ends with its input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_t last;
static volatile unsigned long sink;

static void compute(void) {
    unsigned long x = 1;
    for (int i = 0; i < 20000; i++) x = x * 6364136223846793005UL + 1;
    sink = x;
}

struct start { int busy; volatile int tid, end; };
static struct start *latest;

static void *work(void *argument) {
    struct start *start = argument;
    int busy = start->busy;
    start->tid = (int)syscall(SYS_gettid);
    while (!start->end) {
        compute();
        if (!busy) nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return NULL;
}

static void *end(void *argument) { return argument; }

int main(void) {
    char line[256], text[200];
    int n, cpu;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        int busy = sscanf(line, "busy %d", &n) == 1;
        if (busy || sscanf(line, "threads %d", &n) == 1) {
            for (int i = 0; i < n; i++) {
                struct start *start = calloc(1, sizeof *start);
                start->busy = busy;
                latest = start;
                if (pthread_create(&last, NULL, work, start)) return 1;
                while (!start->tid) sched_yield();
                printf(i ? " %d" : "%d", start->tid);
            }
            puts("");
        } else if (!strncmp(line, "end", 3)) {
            latest->end = 1;
            printf("%d\n", pthread_join(last, NULL));
        } else if (sscanf(line, "storm %d", &n) == 1) {
            for (int i = 0; i < n; i++) {
                pthread_t thread;
                if (pthread_create(&thread, NULL, end, NULL)) return 1;
                pthread_join(thread, NULL);
            }
            puts("over");
        } else if (sscanf(line, "bind %d %d", &n, &cpu) == 2) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
            printf("%d\n", sched_setaffinity(n, sizeof set, &set));
        } else if (sscanf(line, "name %15s", text) == 1) {
            printf("%d\n", pthread_setname_np(last, text));
        } else if (!strncmp(line, "fork", 4)) {
            pid_t child = fork();
            if (!child) { pause(); _exit(0); }
            printf("%d\n", (int)child);
        } else if (!strncmp(line, "orphan", 6)) {
            int ends[2];
            if (pipe(ends)) return 1;
            pid_t child = fork();
            if (!child) {
                pid_t grandchild = fork();
                if (!grandchild) { pause(); _exit(0); }
                if (write(ends[1], &grandchild, sizeof grandchild) < 0) _exit(1);
                /* Long enough to be seen. */
                char go;
                if (read(0, &go, 1) < 0) _exit(1);
                _exit(0);
            }
            pid_t grandchild;
            if (read(ends[0], &grandchild, sizeof grandchild) < 0) return 1;
            printf("%d %d\n", (int)child, (int)grandchild);
            waitpid(child, NULL, 0);
            puts("reaped");
        } else if (!strncmp(line, "headless", 8)) {
            syscall(SYS_exit, 0);
        }
    }
    return 0;
}
