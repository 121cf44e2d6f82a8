/* Every way for a thread to end gives its slot back: afterwards the next thread is created there again. */
#include "seen.h"
#include <setjmp.h>

static int cleaned;
static void clean(void *none) { cleaned++, (void)none; }

static void *returns(void *it) { return it; }
static void *exits(void *it) {
  pthread_cleanup_push(clean, NULL);
  pthread_exit(it);
  pthread_cleanup_pop(0);
}
static void *deep_exit(void *it) {
  char room[64] = "";
  return strlen(room) ? it : exits(it);
}
static void *sleeps(void *it) {
  pthread_cleanup_push(clean, NULL);
  for (;;) sleep(100);
  pthread_cleanup_pop(0);
  return it;
}
static void *spins(void *it) {
  pthread_cleanup_push(clean, NULL);
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  for (;;) __asm__ volatile("");
  pthread_cleanup_pop(0);
  return it;
}

static void next(const char *after) {
  struct sitter one, two;
  printf("%s: %s", after, start_sitting(&one, NULL));
  printf(" %s\n", start_sitting(&two, NULL));
  stop_sitting(&one), stop_sitting(&two);
}

int main(void) {
  struct { const char *name; void *(*routine)(void *); int cancel, cleans; } ways[] = {
    {"return", returns, 0, 0}, {"exit", exits, 0, 1}, {"deep exit", deep_exit, 0, 1},
    {"cancel", sleeps, 1, 1}, {"cancel at any time", spins, 1, 1},
  };
  for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
    for (int many = 0; many < 3; many++) {
      pthread_t thread;
      void *result;
      cleaned = 0;
      CHECK(pthread_create(&thread, NULL, ways[i].routine, &ways[i]) == 0);
      if (ways[i].cancel) {
        usleep(1000);
        CHECK(pthread_cancel(thread) == 0);
      }
      CHECK(pthread_join(thread, &result) == 0);
      CHECK(result == (ways[i].cancel ? PTHREAD_CANCELED : (void *)&ways[i]));
      CHECK(cleaned == ways[i].cleans);
    }
    next(ways[i].name);
  }
  /* A detached thread is not joined; wait until it is gone. */
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  CHECK(pthread_create(&thread, &attr, returns, NULL) == 0);
  for (char path[64];; usleep(1000)) {
    int tasks = 0;
    snprintf(path, sizeof path, "ls /proc/%d/task | wc -l", getpid());
    FILE *list = popen(path, "r");
    CHECK(fscanf(list, "%d", &tasks) == 1);
    pclose(list);
    if (tasks == 1) break;
  }
  next("detached");
}
