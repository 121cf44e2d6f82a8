/* The initial thread computes beside another until it is bound to one CPU, and counts its CPUs then. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS_MOST = 30 };

static volatile int end;

static void *computes(void *none) {
  while (!end) {
  }
  return none;
}

static int bound_to(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  syscall(SYS_sched_getaffinity, 0, sizeof set, &set);
  return CPU_COUNT(&set);
}

int main(void) {
  pthread_t thread;
  cpu_set_t set;
  int bound, told;
  time_t begin = time(NULL);
  if (pthread_create(&thread, NULL, computes, NULL) != 0) return 1;
  do { /* until all three fall into a time without a change */
    bound = bound_to();
    sched_getaffinity(0, sizeof set, &set);
    told = CPU_COUNT(&set);
  } while ((bound > 1 || bound_to() > 1) && time(NULL) - begin < SECONDS_MOST);
  end = 1;
  printf("bound to %d, told %d\n", bound, told);
  return pthread_join(thread, NULL);
}
