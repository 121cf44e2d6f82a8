/* A thread that opens a parallel region, and asks the C library for its mask before, inside and after
   it; then the size of a team that it opens. */
#include "seen.h"
#include <omp.h>

static void say(const char *what) {
  cpu_set_t set;
  char text[24];
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  printf("%s: %s told %s\n", what, here(), letters_of(&set, text));
}

/* A separate function: in clang's code the runtime starts at the beginning of a function that opens a region. */
__attribute__((noinline)) static void open_regions(void) {
#pragma omp parallel num_threads(1)
  say("inside");
  say("behind");
  int team = 0;
#pragma omp parallel
#pragma omp atomic
  team++;
  printf("team: %d\n", team);
}

static void *born(void *none) {
  say("before");
  open_regions();
  return none;
}

int main(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, born, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}
