// A typical profiler: wraps one of libgomp's functions, and calls the next definition.
#define _GNU_SOURCE
#include <dlfcn.h>

void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags)
{
    static void (*real)(void (*)(void *), void *, unsigned, unsigned);
    if (!real)
        real = (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(RTLD_NEXT, "GOMP_parallel");
    real(work, data, threads, flags);
}
