/* Threads that the program makes itself, inside regions and around them: they live in the whole mask, may open regions of
   their own (as further roots, left alone), may end in any way. */
#include "check.h"
#include <pthread.h>

static void check_wide(const char *what) {
  struct mask here = mask_here();
  check_mask(what, &here, &check_state.original);
}

static void *look(void *what) {
  check_wide((const char *)what);
  return what;
}

static void *open_regions(void *what) {
  omp_set_max_active_levels(3);
  for (int again = 0; again < 3; again++) {
#pragma omp parallel num_threads(2)
    {
      check_wide((const char *)what);
#pragma omp parallel num_threads(2)
      check_wide((const char *)what);
    }
  }
  return what;
}

static void *open_and_exit(void *what) {
  open_regions(what);
  pthread_exit(what);
}

static void *wait_to_be_cancelled(void *what) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* no runtime survives it inside a region */
  open_regions(what);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  for (;;) pause();
  return what;
}

static void run(void *(*routine)(void *), const char *what, int cancel) {
  pthread_t thread;
  void *result = NULL;
  check_true(pthread_create(&thread, NULL, routine, (void *)what) == 0);
  if (cancel) check_true(pthread_cancel(thread) == 0);
  check_true(pthread_join(thread, &result) == 0);
  check_true(result == (cancel ? PTHREAD_CANCELED : (const void *)what));
}

static struct mask one_cpu;

static void *look_at_own(void *none) {
  struct mask here = mask_here();
  check_mask("thread with CPUs of its own", &here, &one_cpu);
  return none;
}

static void run_with_attribute(void) {
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  check_true(pthread_attr_setaffinity_np(&attr, sizeof one_cpu, (cpu_set_t *)&one_cpu) == 0);
  check_true(pthread_create(&thread, &attr, look_at_own, NULL) == 0);
  check_true(pthread_join(thread, NULL) == 0);
  pthread_attr_destroy(&attr);
}

int main(void) {
  for (int cpu = 0; cpu < (int)CPUS && !mask_count(&one_cpu); cpu++)
    if (mask_has(&check_state.original, cpu)) mask_add(&one_cpu, cpu);
  omp_set_max_active_levels(3);
#pragma omp parallel num_threads(2)
  check("first");
  for (int again = 0; again < 5; again++) {
    run(look, "outside", 0);
    run(open_regions, "root outside", 0);
    run(open_and_exit, "root that exits", 0);
    run(wait_to_be_cancelled, "root that is cancelled", 1);
    run_with_attribute();
#pragma omp parallel num_threads(2)
    {
      check("region");
      run(look, "thread of a region", 0);
      check("after a thread");
      run(open_and_exit, "root of a region", 0);
      check("after a root");
      run(wait_to_be_cancelled, "root of a region, cancelled", 1);
      run_with_attribute();
      check("after threads");
#pragma omp parallel num_threads(2)
      {
        run(look, "thread of an inner region", 0);
        check("inner");
      }
    }
    check_original("outside");
  }
  return check_end();
}
