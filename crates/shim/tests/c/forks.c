/* Masks of the children of forks: of the initial thread, of pinned threads, of threads placed by the program. */
#include "seen.h"

static char text[24];
static void say(char *words) { strcpy(words, here()); }
static void say_thread(char *words) {
  struct sitter it;
  strcpy(words, start_sitting(&it, NULL));
  stop_sitting(&it);
}
static void say_grandchild(char *words) {
  narrow("B");
  child_says(words, say);
}

static void *pinned(void *none) {
  printf("pinned thread: %s", here());
  printf(" child %s", child_says(text, say));
  printf(" thread of child %s\n", child_says(text, say_thread));
  return none;
}
static void *moved(void *letters) {
  narrow(letters);
  printf("moved thread: %s child %s\n", here(), child_says(text, say));
  return NULL;
}
static void run(void *(*routine)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, routine, argument) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  printf("initial thread: %s child %s\n", here(), child_says(text, say));
  printf("thread of child: %s\n", child_says(text, say_thread));
  run(pinned, NULL);
  run(moved, "A"), run(moved, "B");
  for (const char *letters = "AB"; *letters; letters++) {
    char one[2] = {*letters, 0};
    narrow(one);
    printf("initial thread: %s child %s", here(), child_says(text, say));
    printf(" stays %s\n", here());
  }
  narrow("AB");
  printf("grandchild: %s\n", child_says(text, say_grandchild));
}
