/* Placement of the threads of nested OpenMP regions: a call by which a program that runs under trimtab sets it itself.
 *
 *     #include <trimtab/nesting.h>
 *
 *     omp_set_nesting_info("4,scatter,2,subcompact");
 *
 *     #pragma omp parallel num_threads(4)     // far apart: one on each of four NUMA nodes, if there are four
 *     #pragma omp parallel num_threads(2)     // each of these teams close together, near its master
 *     work();
 *
 * The text has a team size (* for the largest that fits) and a strategy for each nesting level, outermost first:
 *
 *     compact      close together: shared caches, the same memory
 *     scatter      far apart: on as many memory domains, then caches, as there are threads
 *     subcompact   close together, next to the team's master; the default for a size alone
 *     subscatter   far apart, inside the memory domain of the team's master
 *
 * A call replaces the map of all levels. Running teams stay where they are; every region that starts later
 * uses the new map. It may be called at any time, by any thread, also inside regions.
 *
 * No library has to be linked, except -ldl before glibc 2.34: this file defines the function (weakly, so that any number
 * of source files may include it), and the definition searches for trimtab when it is called. Without trimtab the call
 * has no effect.
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
#define TRIMTAB_NESTING_BAD_TEXT 1  /* the text cannot be parsed; the previous map stays in force */
#define TRIMTAB_NESTING_NO_MAP 2    /* trimtab is there, but does not place this process's threads */
#define TRIMTAB_NESTING_NOBODY (-1) /* the program does not run under trimtab */

#ifdef __cplusplus
extern "C" {
#endif

/* Sets how regions nest and where their threads run; see above. Returns one of the numbers above. */
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
  (void)dlerror(); /* clears the error of this search, so that the program does not see it */
#else
  (void)text;
#endif
  return TRIMTAB_NESTING_NOBODY;
}

#ifdef __cplusplus
}
#endif

#endif
