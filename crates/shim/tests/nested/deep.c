/* Nested teams as declared, and one level more. */
#include "check.h"

static void level(int depth) {
  check("before deeper");
  if (depth > check_state.levels) return;
#pragma omp parallel num_threads(depth < check_state.levels ? check_state.shape[depth] : 2)
  {
    check("deep");
    level(depth + 1);
    check("deep, after");
  }
  check("after deeper");
}

int main(void) {
  omp_set_max_active_levels(LEVELS);
  if (check_state.everywhere) check_state.levels = 3, check_state.shape[0] = check_state.shape[1] = check_state.shape[2] = 2;
  for (int again = 0; again < 20; again++) {
    level(0);
    check_original("between");
  }
  return check_end();
}
