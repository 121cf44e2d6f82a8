// Opens as many parallel regions as the first argument says, each of a microsecond or less; with a second argument, every region
// of that number has a barrier inside. Prints the number of regions and barriers.
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    int regions = count > 1 ? atoi(words[1]) : 1000, every = count > 2 ? atoi(words[2]) : 0, barriers = 0;
    volatile int sums[2 * 64] = {0};
    for (int at = 1; at <= regions; at++) {
        int meets = every && at % every == 0;
        barriers += meets;
#pragma omp parallel num_threads(2) firstprivate(meets)
        {
            int index = 64 * (at & 1);
#pragma omp atomic
            sums[index]++;
            if (meets) {
#pragma omp barrier
            }
        }
    }
    printf("%d %d\n", regions, barriers);
    return 0;
}
