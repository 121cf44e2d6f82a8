/* Where the threads of nested OpenMP regions run: the call with which a program running under trimtab says so itself.
 *
 *     #include <trimtab/nesting.h>
 *
 *     omp_set_nesting_info("4,scatter,2,subcompact");
 *
 *     #pragma omp parallel num_threads(4)     // far apart: one on each of four NUMA nodes, where there are as many
 *     #pragma omp parallel num_threads(2)     // each of these teams close together, near its master
 *     work();
 *
 * The text has a team size (* for as many as fit) and a strategy for each nesting level, outermost first:
 *
 *     compact      close together: shared caches, the same memory
 *     scatter      far apart: as many memory domains, then caches, as there are threads
 *     subcompact   close together, next to the team's master; what a size alone means
 *     subscatter   far apart, inside the memory domain of the team's master
 *
 * A call replaces the map of all levels. Teams that are running stay where they are; every region that starts later
 * follows the new map. It may be called at any time, by any thread, inside regions too.
 *
 * Nothing has to be linked but, before glibc 2.34, -ldl: this file defines the function (weakly, so that any number of
 * source files may include it), and that definition looks for trimtab when it is called. Started without trimtab, the
 * program runs as if it had not called.
 *
 * For Fortran there is nesting.f90 beside this file. */
#ifndef TRIMTAB_NESTING_H
#define TRIMTAB_NESTING_H

#ifdef __linux__
#include <dlfcn.h>
#include <string.h>
#endif

/* What omp_set_nesting_info returns. */
#define TRIMTAB_NESTING_DONE 0      /* the map is in force */
#define TRIMTAB_NESTING_BAD_TEXT 1  /* the text cannot be read; the map before stays in force */
#define TRIMTAB_NESTING_NO_MAP 2    /* trimtab is there, but not asked to place this process's threads */
#define TRIMTAB_NESTING_NOBODY (-1) /* the program does not run under trimtab */

#ifdef __cplusplus
extern "C" {
#endif

/* Declares how regions nest and where their threads run; see above. Returns one of the numbers above. */
#ifdef __GNUC__
__attribute__((weak)) int omp_set_nesting_info(const char *text);
__attribute__((weak)) int omp_set_nesting_info(const char *text)
#else
static int omp_set_nesting_info(const char *text)
#endif
{
#ifdef __linux__
  int (*set)(const char *);
  /* A null handle is RTLD_DEFAULT on Linux, whose name <dlfcn.h> gives to users of _GNU_SOURCE only. */
  void *found = dlsym(0, "trimtab_set_nesting_info");
  if (found) {
    memcpy(&set, &found, sizeof set); /* ISO C and C++98 have no cast from data to function pointers */
    return set(text);
  }
  (void)dlerror(); /* the program shall not find our failed search when it asks for its own */
#else
  (void)text;
#endif
  return TRIMTAB_NESTING_NOBODY;
}

#ifdef __cplusplus
}
#endif

#endif
