/* Helper threads of the runtime are not the program's: a deferred target region must not make a team of them. */
#include "check.h"
#include <dirent.h>

/* Threads of this process that have exactly one CPU. */
static int narrow_threads(void) {
  DIR *tasks = opendir("/proc/self/task");
  int narrow = 0;
  for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
    struct mask mask = mask_none();
    long id = atol(entry->d_name);
    if (id > 0 && syscall(SYS_sched_getaffinity, id, sizeof mask, &mask) > 0) narrow += mask_count(&mask) == 1;
  }
  closedir(tasks);
  return narrow;
}

int main(void) {
  int x = 0;
  for (int again = 0; again < 20; again++) {
#pragma omp parallel num_threads(2)
    {
      check("around");
#pragma omp single
      {
#pragma omp target nowait map(tofrom : x)
        x++;
#pragma omp taskwait
      }
      check("after a target");
    }
  }
#pragma omp target nowait map(tofrom : x)
  x++;
#pragma omp taskwait
#pragma omp parallel num_threads(2)
  check("at last");
  check_true(x == 21);
  check_original("outside");
  check_true(narrow_threads() <= 1); /* the other thread of the team */
  return check_end();
}
