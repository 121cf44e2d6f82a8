/* Ten thousand short threads, first one by one, then from four creators at once. Slots must come back each time. */
#include "seen.h"
#include <stdatomic.h>

static const char *first; /* mask of a lone thread at its creation */
static atomic_int elsewhere;

static void *brief(void *none) {
  if (!is_here(first)) elsewhere++;
  return none;
}

static void *crowd(void *none) {
  for (int i = 0; i < 1250; i++) {
    pthread_t two[2];
    for (int j = 0; j < 2; j++) CHECK(pthread_create(&two[j], NULL, brief, NULL) == 0);
    for (int j = 0; j < 2; j++) CHECK(pthread_join(two[j], NULL) == 0);
  }
  return none;
}

static void order(void) {
  struct sitter them[3];
  for (int i = 0; i < 3; i++) printf(" %s", start_sitting(&them[i], NULL));
  for (int i = 0; i < 3; i++) stop_sitting(&them[i]);
}

int main(int count, char **words) {
  CHECK(count == 2);
  first = words[1];
  for (int i = 0; i < 10000; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, brief, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK(elsewhere == 0);
  pthread_t creators[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&creators[i], NULL, crowd, NULL) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(creators[i], NULL) == 0);
  printf("then:");
  order();
  puts("");
}
