/* An OpenMP program that also creates its own threads, counts CPUs, and starts other programs. */
#include "seen.h"
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAY "while read -r key list; do case $key in Cpus_allowed_list:) echo $list;; esac; done </proc/self/status"

static void *born(void *word) {
    char text[8192];
    printf("%s %s\n", (char *)word, mask(text));
    fflush(stdout);
    return 0;
}

static void child(const char *word, char *const *command) {
    printf("%s ", word), fflush(stdout);
    pid_t pid = fork();
    if (!pid) execvp(command[0], command), _exit(127);
    waitpid(pid, 0, 0);
}

int main(void) {
    pthread_t thread;
    int threads = 0;
    setvbuf(stdout, 0, _IOLBF, 0);
#pragma omp parallel
#pragma omp atomic
    threads++;
    printf("team %d\nonline %ld\nnprocs %d\n", threads, sysconf(_SC_NPROCESSORS_ONLN), get_nprocs());
    pthread_create(&thread, 0, born, "thread");
    pthread_join(thread, 0);
    child("forked", (char *[]){"sh", "-c", SAY, 0});
    child("forked-nproc", (char *[]){"env", "-u", "OMP_NUM_THREADS", "nproc", 0});
    printf("spawned "), fflush(stdout);
    return system(SAY);
}
