/* Signals in a storm of regions: handlers check masks, on any thread, at any moment. */
#include "check.h"
#include <errno.h>
#include <signal.h>
#include <sys/time.h>

static long handled;

static void handler(int number) {
  int before = errno;
  struct mask here = mask_here();
  (void)number;
  if (!mask_within(&here, &check_state.original)) check_count(0);
  __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
  errno = before;
}

int main(void) {
  struct sigaction action;
  struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  omp_set_max_active_levels(3);
  for (int again = 0; again < 200 || __atomic_load_n(&handled, __ATOMIC_RELAXED) < 100; again++) {
#pragma omp parallel num_threads(2)
    {
      check("outer");
      raise(SIGUSR1);
#pragma omp parallel num_threads(2)
      check("inner"), raise(SIGUSR1);
      check("outer, after");
    }
    check_original("outside");
  }
  setitimer(ITIMER_REAL, &never, NULL);
  return check_end();
}
