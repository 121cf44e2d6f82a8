/* An affinity in the attribute belongs to the program: the thread takes no slot. */
#include "seen.h"

static void with(const char *what, cpu_set_t *set, size_t size) {
  pthread_attr_t attr;
  struct sitter own, next;
  CHECK(pthread_attr_init(&attr) == 0);
  CHECK(pthread_attr_setaffinity_np(&attr, size, set) == 0);
  printf("%s: %s", what, start_sitting(&own, &attr));
  printf(" next %s\n", start_sitting(&next, NULL));
  stop_sitting(&own), stop_sitting(&next);
  CHECK(pthread_attr_destroy(&attr) == 0);
}

int main(void) {
  cpu_set_t a = set_of("A"), b = set_of("B"), all, none;
  memset(&all, 0xff, sizeof all);
  CPU_ZERO(&none);
  with("a", &a, sizeof a);
  with("b", &b, sizeof b);
  with("all there can be", &all, sizeof all);
  with("taken back", NULL, 0);

  pthread_attr_t attr;
  pthread_t thread;
  CHECK(pthread_attr_init(&attr) == 0);
  CHECK(pthread_attr_setaffinity_np(&attr, sizeof none, &none) == 0);
  printf("nowhere: %d\n", pthread_create(&thread, &attr, sit, NULL));

  CHECK(pthread_getattr_default_np(&attr) == 0);
  CHECK(pthread_attr_setaffinity_np(&attr, sizeof b, &b) == 0);
  CHECK(pthread_setattr_default_np(&attr) == 0);
  struct sitter one, two;
  printf("default: %s", start_sitting(&one, NULL));
  printf(" %s\n", start_sitting(&two, NULL));
  stop_sitting(&one), stop_sitting(&two);
}
