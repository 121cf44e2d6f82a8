/* A thread that starts a thread that starts a thread: the mask of each at its creation. */
#include "seen.h"

static void *next(void *depth) {
  printf(" %s", here());
  pthread_t thread;
  if (depth) {
    CHECK(pthread_create(&thread, NULL, next, (char *)depth - 1) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  return NULL;
}

int main(void) {
  next((void *)3);
  puts("");
}
