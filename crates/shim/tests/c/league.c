// A loop on a league of two teams. Prints the sum of its numbers, and the size of the largest team.
#include <omp.h>
#include <stdio.h>

int main(void) {
    int sum = 0, most = 0;
#pragma omp teams distribute parallel for num_teams(2) reduction(+ : sum) reduction(max : most)
    for (int i = 0; i < 1000; i++) {
        sum += i;
        if (omp_get_num_threads() > most) most = omp_get_num_threads();
    }
    printf("%d %d\n", sum, most);
    return 0;
}
