/* Children and successors of a program start with the program's first mask, whichever thread starts them.
   Without arguments: all ways to start a child, before, inside and after regions.
   "become" WAY WHEN: the program itself becomes another; WHEN is outer, inner, worker or after.
   "there" MASK: the other program; tells whether it has this mask. */
#include "check.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static char mask_word[64], self[4096];

static int status_of(pid_t child) {
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static void become(const char *way) {
  char *there[] = {self, (char *)"there", mask_word, NULL};
  if (strcmp(way, "execv") == 0) execv(self, there);
  if (strcmp(way, "execve") == 0) execve(self, there, environ);
  if (strcmp(way, "execvp") == 0) execvp(self, there);
  if (strcmp(way, "execvpe") == 0) execvpe(self, there, environ);
  if (strcmp(way, "execl") == 0) execl(self, self, "there", mask_word, (char *)NULL);
  if (strcmp(way, "execlp") == 0) execlp(self, self, "there", mask_word, (char *)NULL);
  if (strcmp(way, "execle") == 0) execle(self, self, "there", mask_word, (char *)NULL, environ);
  if (strcmp(way, "fexecve") == 0) {
    FILE *file = fopen(self, "r");
    if (file) fexecve(fileno(file), there, environ);
  }
  if (strcmp(way, "execveat") == 0) execveat(AT_FDCWD, self, there, environ, 0);
  perror(way);
  _exit(3);
}

static const char *const ways[] = {"execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat"};
enum { WAYS = sizeof ways / sizeof *ways };

static void child_of_fork(const char *what) {
  pid_t child = fork();
  if (child == 0) {
    struct mask here = mask_here();
    _exit(mask_same(&here, &check_state.original) ? 0 : 1);
  }
  if (check_count(status_of(child) == 0)) fprintf(stderr, "%s: fork: the child is not where the program began\n", what);
}

static void children(const char *what) {
  char command[4400], *there[] = {self, (char *)"there", mask_word, NULL};
  struct mask before = mask_here(), after;
  pid_t child = -1;
  child_of_fork(what);
  for (int way = 0; way < WAYS; way++) {
    child = fork();
    if (child == 0) become(ways[way]);
    if (check_count(status_of(child) == 0)) fprintf(stderr, "%s: fork and %s\n", what, ways[way]);
  }
  child = vfork();
  if (child == 0) execve(self, there, environ), _exit(3);
  if (check_count(status_of(child) == 0)) fprintf(stderr, "%s: vfork and execve\n", what);
  if (check_count(posix_spawn(&child, self, NULL, NULL, there, environ) == 0 && status_of(child) == 0))
    fprintf(stderr, "%s: posix_spawn\n", what);
  posix_spawnattr_t attr;
  posix_spawnattr_init(&attr);
  if (check_count(posix_spawnp(&child, self, NULL, &attr, there, environ) == 0 && status_of(child) == 0))
    fprintf(stderr, "%s: posix_spawnp\n", what);
  posix_spawnattr_destroy(&attr);
  snprintf(command, sizeof command, "exec '%s' there %s", self, mask_word);
  if (check_count(system(command) == 0)) fprintf(stderr, "%s: system\n", what);
  FILE *pipe = popen(command, "r");
  if (check_count(pipe && pclose(pipe) == 0)) fprintf(stderr, "%s: popen\n", what);
  after = mask_here();
  if (check_count(mask_same(&before, &after))) fprintf(stderr, "%s: the parent has moved\n", what);
}

int main(int count, char **words) {
  if (count == 3 && strcmp(words[1], "there") == 0) {
    char is[64];
    return strcmp(mask_text(&check_state.original, is), words[2]) != 0;
  }
  mask_text(&check_state.original, mask_word);
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  self[length > 0 ? length : 0] = 0;
  omp_set_max_active_levels(3);
  if (count == 4) {
    const char *when = words[3];
#pragma omp parallel num_threads(2)
    {
      check("before an exec");
      /* One inner team only: the system refuses a process new threads while one of it becomes another program. */
      if (strcmp(when, "inner") == 0 && omp_get_thread_num() == 0) {
#pragma omp parallel num_threads(2)
        if (omp_get_thread_num() == 1) become(words[2]);
        else
          for (;;) sleep(1);
      }
      if (strcmp(when, "outer") == 0 && omp_get_thread_num() == 0) become(words[2]);
      if (strcmp(when, "worker") == 0 && omp_get_thread_num() == 1) become(words[2]);
      while (strcmp(when, "after") != 0) sleep(1);
    }
    become(words[2]);
  }

  children("before");
#ifdef __clang__
  enum { SURVIVES_FORK = 1 };
#else
  enum { SURVIVES_FORK = 0 }; /* libgomp's teams do not */
#endif
#pragma omp parallel num_threads(2)
  {
    check("region");
#pragma omp critical
    children("inside");
    check("after children");
#pragma omp barrier
#pragma omp parallel num_threads(2)
    {
#pragma omp critical
      child_of_fork("inner");
      check("after an inner child");
    }
  }
  check_original("after regions");
  children("after");
  if (SURVIVES_FORK) {
    pid_t child = fork();
    if (child == 0) {
      expect(NULL, "all");
#pragma omp parallel num_threads(2)
      {
        check("region of a child");
#pragma omp parallel num_threads(2)
        check("inner region of a child");
      }
      _exit(check_state.wrong != 0);
    }
    check_true(status_of(child) == 0);
  }
#pragma omp parallel num_threads(2)
  check("at the end");
  return check_end();
}
