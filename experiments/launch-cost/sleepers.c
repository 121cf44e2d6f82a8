/* Processes with sleeping threads: sleepers PROCESSES THREADS. Prints a line when all exist, and ends them when its standard input
   is closed, or with its own end. */

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *sleep_on(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

static void become_sleepers(int threads, pid_t parent, int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    for (int count = 1; count < threads; count++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, sleep_on, NULL)) {
            /* The other children keep the pipe open, so the parent is told. */
            (void)!write(ready, "x", 1);
            _exit(1);
        }
    }
    if (write(ready, ".", 1) != 1)
        _exit(1);
    sleep_on(NULL);
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    int processes = atoi(words[1]), threads = atoi(words[2]), ready[2];
    char byte;
    if (pipe(ready))
        return 1;
    for (int made = 0; made < processes; made++) {
        pid_t parent = getpid(), child = fork();
        if (child < 0)
            return 1;
        if (child == 0)
            become_sleepers(threads, parent, ready[1]);
    }
    close(ready[1]);
    for (int made = 0; made < processes; made++)
        if (read(ready[0], &byte, 1) != 1 || byte != '.')
            return 1;
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
