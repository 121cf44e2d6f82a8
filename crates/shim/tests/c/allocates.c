/* Program on an allocator that calls the C library while it starts (allocator.c). */
#include "seen.h"

extern long cpus_at_start, page_at_start;
extern int helpers;

static void *allocate(void *none) {
  for (int i = 0; i < 20000; i++) CHECK(malloc(i % 64) != NULL);
  return none;
}

int main(void) {
  pthread_t three[3];
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&three[i], NULL, allocate, NULL) == 0);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(three[i], NULL) == 0);
  CHECK(helpers >= 60);
  printf("at start: cpus %ld page %ld\n", cpus_at_start, page_at_start);
  struct sitter one, two;
  printf("threads: %s", start_sitting(&one, NULL));
  printf(" %s\n", start_sitting(&two, NULL));
  stop_sitting(&one), stop_sitting(&two);
}
