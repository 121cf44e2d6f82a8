// Threads that allocate, write and free, and hand blocks to each other.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 2, SLOTS = 1024, ROUNDS = 3000000 };

static _Atomic(char *) slots[SLOTS];

static void *work(void *argument) {
    unsigned long seed = (unsigned long)argument + 1;
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        size_t size = 16 + (seed >> 33) % 2000;
        char *block = malloc(size);
        if (!block)
            abort();
        memset(block, round, size < 64 ? size : 64);
        free(atomic_exchange(&slots[(seed >> 20) % SLOTS], block));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (unsigned long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
