/* Regions with proc_bind clauses, which a runtime may follow with system calls of its own. */
#include "check.h"

int main(void) {
  omp_set_max_active_levels(3);
  for (int again = 0; again < 100; again++) {
#pragma omp parallel num_threads(2) proc_bind(spread)
    {
      check("spread");
#pragma omp parallel num_threads(2) proc_bind(master)
      check("master in spread");
#pragma omp parallel num_threads(2) proc_bind(close)
      check("close in spread");
      check("spread, after");
    }
#pragma omp parallel num_threads(2) proc_bind(master)
    {
      check("master");
#pragma omp parallel num_threads(2) proc_bind(spread)
      check("spread in master");
      check("master, after");
    }
#pragma omp parallel num_threads(2) proc_bind(close)
    check("close");
  }
  return check_end();
}
