/* Threads whose masks are changed by system calls, as a balancer changes them from outside. Each line gives
   the kernel's mask of the thread, and what the C library says. */
#include "seen.h"

static char text[24];

static const char *told(void) {
  cpu_set_t set;
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  return letters_of(&set, text);
}

static void say(const char *what) { printf("%s: %s told %s\n", what, here(), told()), fflush(stdout); }

static void bind(const char *letters) {
  cpu_set_t set = set_of(letters);
  CHECK(syscall(SYS_sched_setaffinity, 0, sizeof set, &set) == 0);
}

static void *bound(void *letters) { return bind((const char *)letters), say("thread"), NULL; }
static void *born(void *none) { return say("attribute"), none; }

static void say_told(char *words) { strcpy(words, told()); }

int main(void) {
  pthread_t thread;
  pthread_attr_t attr;
  cpu_set_t set = set_of("A");
  char child[24];
  say("initial");
  bind("A");
  say("bound");
  CHECK(pthread_create(&thread, NULL, bound, (void *)"B") == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  printf("forked: %s\n", child_says(child, say_told));
  bind("AB");
  CHECK(pthread_attr_init(&attr) == 0);
  CHECK(pthread_attr_setaffinity_np(&attr, sizeof set, &set) == 0);
  CHECK(pthread_create(&thread, &attr, born, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_attr_destroy(&attr) == 0);
  bind("B");
  say("after one was set");
  return 0;
}
