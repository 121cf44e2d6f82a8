/* A program with one OpenMP runtime opens a library (argv[1]) with another, which must see the machine as the program was
   given it: after regions (argv[2] "after") or by a thread of a running team ("inside"). */
#include "check.h"
#include <dlfcn.h>

int main(int count, char **words) {
  void *plugin = NULL;
  int inside = count > 2 && strcmp(words[2], "inside") == 0;
  if (count < 2) return 2;
  omp_set_max_active_levels(3);
  for (int again = 0; again < 3; again++) {
#pragma omp parallel num_threads(2)
    {
      check("own region");
#pragma omp parallel num_threads(2)
      check("own inner region");
#pragma omp barrier
      if (inside && omp_get_thread_num() == 1 && !plugin) {
        plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
        if (plugin) check_true(((int (*)(void))dlsym(plugin, "plug_in_procs"))() == mask_count(&check_state.original));
      }
    }
  }
  if (!plugin) plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 2;
  int all = mask_count(&check_state.original);
  check_true(((int (*)(void))dlsym(plugin, "plug_in_procs"))() == all);
  check_true(((int (*)(void))dlsym(plugin, "plug_in_threads"))() == all);
  check_true(omp_get_num_procs() == all);
  check_true(sysconf(_SC_NPROCESSORS_ONLN) == all);
  long (*wrong)(const char *, long *) = (long (*)(const char *, long *))dlsym(plugin, "plug_in_wrong");
  for (int again = 0; again < 5; again++) {
    long looked = 0;
    check_true(wrong("", &looked) == 0 && looked > 0);
#pragma omp parallel num_threads(2)
    {
      check("own region beside another runtime");
#pragma omp parallel num_threads(2)
      check("own inner region beside another runtime");
    }
    check_original("beside another runtime");
  }
  return check_end();
}
