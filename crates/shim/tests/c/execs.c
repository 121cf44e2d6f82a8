/* Executes itself again: from the initial thread, then from a pinned one. Each time reports itself and two threads. */
#include "seen.h"

static char **all;
static void *again(void *none) {
  char step[] = {(char)(all[1][0] + 1), 0};
  fflush(stdout);
  execl("/proc/self/exe", all[0], step, NULL);
  return none;
}

int main(int count, char **words) {
  CHECK(count == 2);
  all = words;
  struct sitter one, two;
  printf("%s: %s:", words[1], here());
  printf(" %s", start_sitting(&one, NULL));
  printf(" %s\n", start_sitting(&two, NULL));
  stop_sitting(&one), stop_sitting(&two);
  pthread_t thread;
  switch (words[1][0]) {
    case '1': again(NULL); break;
    case '2': CHECK(pthread_create(&thread, NULL, again, NULL) == 0); pthread_join(thread, NULL); break;
  }
}
