/* Every way to ask the C library for the number of CPUs, here and in a child, and other limits for comparison. */
#include "seen.h"
#include <sys/sysinfo.h>

static void all(const char *who) {
  printf("%s: online %ld configured %ld nprocs %d nprocs_conf %d\n", who, sysconf(_SC_NPROCESSORS_ONLN),
         sysconf(_SC_NPROCESSORS_CONF), get_nprocs(), get_nprocs_conf());
  fflush(stdout);
}
static void *thread(void *none) { return all("thread"), none; }

int main(void) {
  all("main");
  pthread_t it;
  CHECK(pthread_create(&it, NULL, thread, NULL) == 0 && pthread_join(it, NULL) == 0);
  if (fork() == 0) return all("child"), 0;
  wait(NULL);
  errno = 0;
  CHECK(sysconf(-1) == -1 && errno == EINVAL);
  printf("page %ld clock %ld open %ld physical %ld\n", sysconf(_SC_PAGESIZE), sysconf(_SC_CLK_TCK),
         sysconf(_SC_OPEN_MAX), sysconf(_SC_PHYS_PAGES));
}
