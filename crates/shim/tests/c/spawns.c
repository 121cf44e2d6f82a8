/* Starts programs without fork from a pinned thread. Their masks may be wrong, but they must work. */
#include "seen.h"
#include <spawn.h>

extern char **environ;

static void *pinned(void *none) {
  char *words[] = {"sh", "-c", "exit 7", NULL};
  pid_t child;
  int status;
  CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0);
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  CHECK(WEXITSTATUS(system("exit 8")) == 8);
  child = vfork();
  if (child == 0) {
    execv("/bin/sh", words);
    _exit(1);
  }
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  return none;
}

int main(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, pinned, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  puts("done");
}
