/* A child of a fork before any region opens regions: its threads are not placed, since the plan names its parent. */
#include "check.h"
#include <sys/wait.h>

int main(void) {
  int status = -1;
  omp_set_max_active_levels(3);
  pid_t child = fork();
  if (child == 0) expect(NULL, "all");
  for (int again = 0; again < 20; again++) {
#pragma omp parallel num_threads(2)
    {
      check(child ? "parent" : "child");
#pragma omp parallel num_threads(2)
      check(child ? "inner of the parent" : "inner of the child");
    }
    check_original("outside");
  }
  if (child == 0) _exit(check_state.wrong != 0);
  check_true(waitpid(child, &status, 0) == child && status == 0);
  return check_end();
}
