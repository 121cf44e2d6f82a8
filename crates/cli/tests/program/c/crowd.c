/* Stand-in with the output of uncore_lists: threads that run for a moment and sleep, and windows that a line opens. A turn takes 10 ns, in every way
   of running. With `mute` in the environment it prints nothing, with `wrong` a wrong result. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t all;
static long ids[2000];

static void *work(void *place) {
    *(long *)place = syscall(SYS_gettid);
    pthread_barrier_wait(&all);
    for (;;) {
        for (volatile int i = 0; i < 1000; i++) {
        }
        usleep(5000);
    }
    return NULL;
}

int main(int count, char **words) {
    int threads = 1, repeats = 1, waits = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--threads") == 0) {
            threads = atoi(words[i + 1]);
        } else if (strcmp(words[i], "--repeats") == 0) {
            repeats = atoi(words[i + 1]);
        } else if (strcmp(words[i], "--wait") == 0) {
            waits = 1;
        }
    }
    if (getenv("mute")) {
        fputs("no memory\n", stderr);
        return 3;
    }
    pthread_barrier_init(&all, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &ids[i]) != 0) {
            return 3;
        }
        pthread_detach(thread);
    }
    pthread_barrier_wait(&all);
    printf("threads");
    for (int i = 0; i < threads; i++) {
        printf(" %ld", ids[i]);
    }
    printf("\n");
    fflush(stdout);
    if (!waits) {
        sleep(3600);
        return 0;
    }
    for (int window = 0; window < repeats; window++) {
        if (getchar() == EOF) {
            return 3;
        }
        printf("{\"turn_ns\":10.0,\"verified\":%s}\n", getenv("wrong") ? "false" : "true");
        fflush(stdout);
    }
    getchar();
    return 0;
}
