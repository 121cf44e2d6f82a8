// Threads of the runtime's pool open a region at their very end, in the destructors of their variables, when the threads
// that opened the teams they were in have long ended.
#include <cstdio>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

struct Last {
    bool on = false;
    ~Last()
    {
        if (!on)
            return;
        usleep(20000);
        int sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
        for (int i = 0; i < 100; i++)
            sum += i;
        if (sum != 4950)
            std::puts("wrong");
    }
};

thread_local Last last;

static void *opener(void *)
{
#pragma omp parallel num_threads(3)
    last.on = omp_get_thread_num() != 0;
    return nullptr;
}

int main()
{
    for (int round = 0; round < 5; round++) {
        // A stack large enough to be given back at once, so that what lay on it is gone.
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 256 << 20);
        pthread_t thread;
        pthread_create(&thread, &attributes, opener, nullptr);
        pthread_join(thread, nullptr);
    }
    usleep(200000);
    std::puts("done");
}
