// Threads that meet at a flag of their own and never sleep, as those of NAS LU do: OMP_NUM_THREADS
// threads (4 without it), and as many meetings as the first argument says. With --break-below N
// the program fails with status 3 if it has fewer threads than N.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long arrived;
static long threads, meetings;

static void *work(void *nothing) {
    (void)nothing;
    for (long at = 1; at <= meetings; at++) {
        atomic_fetch_add(&arrived, 1);
        while (atomic_load(&arrived) < at * threads) {
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    const char *said = getenv("OMP_NUM_THREADS");
    threads = said ? strtol(said, NULL, 10) : 4;
    meetings = count > 1 ? strtol(arguments[1], NULL, 10) : 1000;
    if (count > 3 && strcmp(arguments[2], "--break-below") == 0 && threads < strtol(arguments[3], NULL, 10)) {
        fprintf(stderr, "too few threads\n");
        return 3;
    }
    pthread_t all[64];
    for (long at = 1; at < threads && at < 64; at++) pthread_create(&all[at], NULL, work, NULL);
    work(NULL);
    for (long at = 1; at < threads && at < 64; at++) pthread_join(all[at], NULL);
    printf("all have met\n");
    return 0;
}
