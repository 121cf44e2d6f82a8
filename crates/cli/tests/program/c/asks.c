// A team of OpenMP whose first thread runs the command in argv[1], inside the team and after it.
#include <stdlib.h>

int main(int count, char **words) {
    int status = 0;
    if (count != 2)
        return 2;
#pragma omp parallel
    {
#pragma omp master
        status = system(words[1]);
    }
    return status || system(words[1]) ? 1 : 0;
}
