/* Starts a program with these arguments, and prints how it ended. */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **words) {
  pid_t child;
  int status;
  if (count < 2 || posix_spawn(&child, words[1], NULL, NULL, words + 1, environ) != 0) return 1;
  if (waitpid(child, &status, 0) != child) return 2;
  printf("status %d\n", WEXITSTATUS(status));
}
