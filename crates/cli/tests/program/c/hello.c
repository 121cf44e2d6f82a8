/* Prints one line and ends with its own status; with "start" in front, starts a program that does. */
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **words) {
  if (count > 2 && strcmp(words[1], "start") == 0) {
    pid_t child;
    int status;
    if (posix_spawn(&child, words[2], NULL, NULL, words + 2, environ) != 0) return 1;
    if (waitpid(child, &status, 0) != child) return 2;
    return WEXITSTATUS(status);
  }
  puts("hello");
  return 3;
}
