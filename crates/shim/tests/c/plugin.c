/* A library whose constructor starts a thread that starts a thread, and waits for both. */
#include "seen.h"

char inner_mask[24], outer_mask[24];

static void *inner(void *none) {
  strcpy(inner_mask, here());
  return none;
}
static void *outer(void *none) {
  pthread_t thread;
  strcpy(outer_mask, here());
  CHECK(pthread_create(&thread, NULL, inner, NULL) == 0 && pthread_join(thread, NULL) == 0);
  return none;
}
__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, outer, NULL) == 0 && pthread_join(thread, NULL) == 0);
}
