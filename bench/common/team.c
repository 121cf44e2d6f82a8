/*
 * The OpenMP thread team, found by counting its members.  See team.h.
 */
#include "common/team.h"

int team_size(void)
{
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads += 1;
    return threads;
}
