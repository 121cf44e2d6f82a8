// A team of OpenMP that computes until the program is killed. It says when it has begun.
#include <stdio.h>

int main(void) {
#pragma omp parallel
    {
#pragma omp single nowait
        {
            puts("on");
            fflush(stdout);
        }
        for (volatile int on = 1; on;) {
        }
    }
    return 0;
}
