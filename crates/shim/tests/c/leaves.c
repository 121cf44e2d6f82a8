/* The initial thread runs on the CPU of the first slot that is given away, and creates a thread. Prints on
   how many of 8 such occasions, with more than the least pause between moves, it was elsewhere after that, on
   how many of 100 without a pause, and on how many of all its mask was the same. */
#include "seen.h"

static void *waits(void *go) {
  while (!__atomic_load_n((int *)go, __ATOMIC_SEQ_CST)) usleep(100);
  return NULL;
}

int main(int count, char **words) {
  int left[2] = {0, 0}, same = 0;
  CHECK(count == 2);
  for (int i = 0; i < 108; i++) {
    pthread_t thread;
    int go = 0, pauses = i < 8;
    if (pauses) usleep(150000);
    cpu_set_t one = set_of(words[1]), both = set_of("AB");
    CHECK(syscall(SYS_sched_setaffinity, 0, sizeof one, &one) == 0);
    CHECK(syscall(SYS_sched_setaffinity, 0, sizeof both, &both) == 0);
    CHECK(pthread_create(&thread, NULL, waits, &go) == 0);
    left[pauses] += !CPU_ISSET(sched_getcpu(), &one);
    same += is_here("AB");
    __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  printf("left %d and %d same %d\n", left[1], left[0], same);
  return 0;
}
