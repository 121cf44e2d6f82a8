/* A library with OpenMP in it, opened at run time: checks its own regions, and prints the runtime's view of the machine. */
#include "check.h"

static void nest(int rounds) {
  for (int again = 0; again < rounds; again++) {
#pragma omp parallel num_threads(2)
    {
      check("plug-in");
#pragma omp parallel for num_threads(2) schedule(dynamic)
      for (int i = 0; i < 2; i++) check("loop of a plug-in");
#pragma omp parallel sections num_threads(2)
      {
#pragma omp section
        check("section of a plug-in");
      }
      check("plug-in, after");
    }
  }
}

/* Failures and number of checks. Called outside regions; "all" if no thread is to be placed. */
long plug_in_wrong(const char *masks, long *checks) {
  if (*masks) expect(getenv("SHAPE"), masks);
  check_state.original = mask_told(); /* it may have been opened by a thread of a team */
  omp_set_max_active_levels(3);
  check_original("before a plug-in's regions");
  nest(20);
  check_original("after a plug-in's regions");
  *checks = check_state.checks;
  return check_state.wrong;
}

int plug_in_procs(void) { return omp_get_num_procs(); }
int plug_in_threads(void) { return omp_get_max_threads(); }
