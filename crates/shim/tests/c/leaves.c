/* The initial thread runs on the CPU of the first slot that is given away, and creates a thread. Prints on
   how many of 20 such occasions it was elsewhere after that, and whether its mask was the same. */
#include "seen.h"

static void *waits(void *go) {
  while (!__atomic_load_n((int *)go, __ATOMIC_SEQ_CST)) usleep(100);
  return NULL;
}

int main(int count, char **words) {
  int left = 0, same = 0;
  CHECK(count == 2);
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    int go = 0;
    cpu_set_t one = set_of(words[1]), both = set_of("AB");
    CHECK(syscall(SYS_sched_setaffinity, 0, sizeof one, &one) == 0);
    CHECK(syscall(SYS_sched_setaffinity, 0, sizeof both, &both) == 0);
    CHECK(pthread_create(&thread, NULL, waits, &go) == 0);
    left += !CPU_ISSET(sched_getcpu(), &one);
    same += is_here("AB");
    __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  printf("left %d same %d\n", left, same);
  return 0;
}
