/* Starts a program in every possible way, and prints the ways that did not end as expected.
   Usage: starts PROGRAM NAME WORDS: its path, its name in PATH, and the words that it prints after its arguments.
   ROOT: a folder to change the root to first. VARIABLES: number of additional variables. */
#define _GNU_SOURCE
#include "seen.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

static const char *program, *name;
static char wanted[256];
static char *words[] = {"tells", "a", "b", "c", "d", "e", "f", "g", "h", NULL};

static int fail(const char *way, const char *what, const char *said, int status) {
  printf("%s: %s: status %d, said: %s", way, what, status, said);
  return 1;
}

/* Output of a child started in this way, and its end. */
static int judge(const char *way, int ends[2], pid_t child) {
  char said[1024];
  size_t length = 0;
  ssize_t got;
  int status;
  close(ends[1]);
  while ((got = read(ends[0], said + length, sizeof said - 1 - length)) > 0) length += (size_t)got;
  said[length] = 0;
  close(ends[0]);
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return fail(way, "ended otherwise", said, status);
  return strcmp(said, wanted) ? fail(way, "said otherwise", said, status) : 0;
}

static void become(const char *way) {
  if (!strcmp(way, "execve")) execve(program, words, environ);
  if (!strcmp(way, "execv")) execv(program, words);
  if (!strcmp(way, "execvp")) execvp(name, words);
  if (!strcmp(way, "execvpe")) execvpe(name, words, environ);
  if (!strcmp(way, "execl")) execl(program, "tells", "a", "b", "c", "d", "e", "f", "g", "h", NULL);
  if (!strcmp(way, "execlp")) execlp(name, "tells", "a", "b", "c", "d", "e", "f", "g", "h", NULL);
  if (!strcmp(way, "execle")) execle(program, "tells", "a", "b", "c", "d", "e", "f", "g", "h", NULL, environ);
  if (!strcmp(way, "fexecve")) fexecve(open(program, O_PATH), words, environ);
  if (!strcmp(way, "execveat")) {
    char folder[4096];
    strcpy(folder, program);
    *strrchr(folder, '/') = 0;
    execveat(open(*folder ? folder : "/", O_PATH | O_DIRECTORY), strrchr(program, '/') + 1, words, environ, 0);
  }
  _exit(99);
}

int main(int count, char **arguments) {
  CHECK(count == 4);
  program = arguments[1], name = arguments[2];
  snprintf(wanted, sizeof wanted, "a b c d e f g h %s\n", arguments[3]);
  for (int at = 0, all = getenv("VARIABLES") ? atoi(getenv("VARIABLES")) : 0; at < all; at++) {
    char variable[32];
    snprintf(variable, sizeof variable, "V%d", at);
    CHECK(setenv(variable, "x", 1) == 0);
  }
  if (getenv("ROOT")) CHECK(chroot(getenv("ROOT")) == 0 && chdir("/") == 0);
  const char *ways[] = {"execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat"};
  int faults = 0;
  for (size_t at = 0; at < sizeof ways / sizeof *ways; at++) {
    int ends[2];
    /* A script that is opened close-on-exec, or in another root, cannot be read again by its interpreter. */
    if (!strcmp(ways[at], "fexecve") && getenv("ROOT")) continue;
    for (int shared = 0; shared < 2; shared++) {
      fflush(stdout);
      CHECK(pipe2(ends, O_CLOEXEC) == 0);
      pid_t child = shared ? vfork() : fork();
      CHECK(child >= 0);
      if (child == 0) {
        dup2(ends[1], 1);
        become(ways[at]);
      }
      faults += judge(ways[at], ends, child);
    }
  }
  for (int way = 0; way < 2; way++) {
    int ends[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], 1) == 0);
    if (way) CHECK(posix_spawnp(&child, name, &actions, NULL, words, environ) == 0);
    else CHECK(posix_spawn(&child, program, &actions, NULL, words, environ) == 0);
    faults += judge(way ? "posix_spawnp" : "posix_spawn", ends, child);
  }
  char command[4200], said[1024] = "";
  snprintf(command, sizeof command, "%s a b c d e f g h", program);
  FILE *pipe = popen(command, "r");
  CHECK(pipe && fgets(said, sizeof said, pipe));
  int status = pclose(pipe);
  if (WEXITSTATUS(status) != 7 || strcmp(said, wanted)) faults += fail("popen", "otherwise", said, status);
  snprintf(command, sizeof command, "exec %s a >&-", program);
  status = system(command);
  if (WEXITSTATUS(status) != 7) faults += fail("system", "ended otherwise", "\n", status);
  /* A parent keeps its own environment, and no memory goes with the children. */
  long before = 0, after = 0;
  for (int round = 0; round < 60; round++) {
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) break; /* another root */
    CHECK(fscanf(file, "%ld", &after) == 1);
    fclose(file);
    if (round == 9) before = after;
    pid_t child = vfork();
    if (child == 0) {
      close(1);
      execv(program, words);
      _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child);
  }
  if (after > before) faults += fail("vfork", "memory grew", "\n", (int)(after - before));
  if (!getenv("ROOT")) CHECK(getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libtrimtab_shim.so"));
  errno = 0;
  CHECK(execl("/none", "none", NULL) == -1 && errno == ENOENT);
  CHECK(execlp("none-of-that-name", "none", NULL) == -1 && errno == ENOENT);
  printf("faults %d\n", faults);
}
