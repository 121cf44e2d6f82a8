/* Checks that the threads of parallel regions have the requested masks.
 *
 * The environment gives the expected values:
 *   EXPECT="B,A/B,A,A,B"   the CPU of each thread, level after level, by its number among all threads of the level;
 *                          A and B are the numbers in CPU_A and CPU_B, other CPUs are written as numbers
 *   EXPECT=all             no thread is placed: every thread has the mask with which the program began
 *   SHAPE=2,2              the declared team size of each level, which turns paths of thread numbers into such numbers
 *
 * Below the declared levels a master keeps its CPU, and the others have the whole mask. In a team larger
 * than declared each thread has one CPU, no matter which. Masks of threads are read by a system call, since the C
 * library's functions may be interposed. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CPUS = 1024, WORD = 8 * sizeof(unsigned long), LEVELS = 8, ROOM = 64 };

struct mask {
  unsigned long word[CPUS / WORD];
};

/* Expected and observed values. */
static struct {
  struct mask original, table[LEVELS][ROOM];
  int shape[LEVELS], levels, everywhere;
  long checks, wrong;
} check_state;

static inline struct mask mask_none(void) {
  struct mask none;
  memset(&none, 0, sizeof none);
  return none;
}

static inline void mask_add(struct mask *mask, int cpu) {
  if (cpu >= 0 && cpu < (int)CPUS) mask->word[cpu / WORD] |= 1UL << cpu % WORD;
}

static inline int mask_has(const struct mask *mask, int cpu) { return mask->word[cpu / WORD] >> cpu % WORD & 1; }

static inline int mask_count(const struct mask *mask) {
  int count = 0;
  for (int cpu = 0; cpu < (int)CPUS; cpu++) count += mask_has(mask, cpu);
  return count;
}

static inline int mask_same(const struct mask *one, const struct mask *other) {
  return memcmp(one, other, sizeof *one) == 0;
}

static inline int mask_within(const struct mask *part, const struct mask *whole) {
  for (int i = 0; i < (int)(CPUS / WORD); i++)
    if (part->word[i] & ~whole->word[i]) return 0;
  return 1;
}

static inline const char *mask_text(const struct mask *mask, char text[64]) {
  int at = 0;
  text[0] = 0;
  for (int cpu = 0; cpu < (int)CPUS && at < 56; cpu++)
    if (mask_has(mask, cpu)) at += snprintf(text + at, 64 - at, "%s%d", at ? "," : "", cpu);
  return text;
}

/* The mask of the calling thread, by a system call. */
static inline struct mask mask_here(void) {
  struct mask here = mask_none();
  if (syscall(SYS_sched_getaffinity, 0, sizeof here, &here) < 0) perror("sched_getaffinity");
  return here;
}

/* The mask of the calling thread, by the C library. */
static inline struct mask mask_told(void) {
  struct mask here = mask_none();
  if (sched_getaffinity(0, sizeof here, (cpu_set_t *)&here) != 0) perror("sched_getaffinity");
  return here;
}

static inline void mask_set(const struct mask *mask) {
  if (sched_setaffinity(0, sizeof *mask, (const cpu_set_t *)mask) != 0) perror("sched_setaffinity");
}

/* Counts a check, and prints the first failures. */
static inline int check_count(int right) {
  __atomic_add_fetch(&check_state.checks, 1, __ATOMIC_RELAXED);
  return !right && __atomic_add_fetch(&check_state.wrong, 1, __ATOMIC_RELAXED) <= 12;
}

#define check_true(what) \
  ((void)(check_count((what) != 0) && fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what)))

static inline void check_mask(const char *what, const struct mask *here, const struct mask *wanted) {
  char is[64], should[64], path[64] = "";
  if (!check_count(mask_same(here, wanted))) return;
  for (int level = 1, at = 0; level <= omp_get_level() && at < 50; level++)
    at += snprintf(path + at, sizeof path - at, ".%d", omp_get_ancestor_thread_num(level));
  fprintf(stderr, "%s: thread %s has mask %s, should have %s\n", what, path[0] ? path + 1 : "outside",
          mask_text(here, is), mask_text(wanted, should));
}

static inline void read_masks(const char *text) {
  const char *a = getenv("CPU_A"), *b = getenv("CPU_B");
  int level = 0, at = 0;
  memset(check_state.table, 0, sizeof check_state.table);
  check_state.everywhere = text == NULL || strcmp(text, "all") == 0;
  check_state.levels = 0;
  if (check_state.everywhere) return;
  for (; *text && level < LEVELS && at < ROOM; text++) {
    if (*text == '/') level++, at = 0;
    else if (*text == ',') at++;
    else if (*text == 'A') mask_add(&check_state.table[level][at], a ? atoi(a) : 0);
    else if (*text == 'B') mask_add(&check_state.table[level][at], b ? atoi(b) : 1);
    else mask_add(&check_state.table[level][at], (int)strtol(text, (char **)&text, 10)), text--;
  }
  check_state.levels = level + 1;
}

/* Sets the expected masks; "" for no declared level, so that no thread is placed by level. */
static inline void expect(const char *shape, const char *masks) {
  for (int level = 0; level < LEVELS; level++) {
    check_state.shape[level] = shape && *shape ? (int)strtol(shape, (char **)&shape, 10) : 1;
    if (shape && *shape == ',') shape++;
  }
  read_masks(masks);
}

__attribute__((constructor)) static void check_begin(void) {
  check_state.original = mask_here();
  expect(getenv("SHAPE"), getenv("EXPECT"));
}

/* The expected mask of a thread on this level of the calling thread's path. False if any one CPU is right: in a
   team of more threads than declared, except for its first thread. */
static inline int expected(int level, struct mask *wanted) {
  *wanted = check_state.original;
  if (level == 0 || check_state.everywhere) return 1;
  if (level > check_state.levels)
    return omp_get_ancestor_thread_num(level) == 0 && level > 1 ? expected(level - 1, wanted) : 1;
  int index = 0;
  for (int l = 1; l <= level; l++) {
    int number = omp_get_ancestor_thread_num(l);
    if (number > 0 && omp_get_team_size(l) > check_state.shape[l - 1]) return 0;
    index = index * check_state.shape[l - 1] + number;
  }
  *wanted = check_state.table[level - 1][index < ROOM ? index : 0];
  return 1;
}

/* Checks that the calling thread has the mask with which the program began. Asks the C library first: the shim may leave
   a thread in its place for a while, as long as the program cannot notice it. */
static inline void check_original(const char *what) {
  struct mask told = mask_told(), here = mask_here();
  check_mask(what, &told, &check_state.original);
  check_mask(what, &here, &check_state.original);
}

/* In a region: checks the calling thread's mask. */
static inline void check(const char *what) {
  struct mask here = mask_here(), wanted;
  if (omp_get_level() == 0) return check_original(what);
  if (expected(omp_get_level(), &wanted)) check_mask(what, &here, &wanted);
  else if (check_count(mask_count(&here) == 1 && mask_within(&here, &wanted))) {
    char is[64];
    fprintf(stderr, "%s: thread of a large team has mask %s, should have one CPU\n", what,
            mask_text(&here, is));
  }
}

/* Waits until all `n` threads of a team have come here: a waiting thread takes no second iteration, section or task. */
static inline void meet(int *arrived, int n) {
  __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < n) sched_yield();
}

static inline void add(long *sum, long value) { __atomic_add_fetch(sum, value, __ATOMIC_RELAXED); }

/* The last line of a program, and its exit status. */
static inline int check_end(void) {
  printf("checks %ld wrong %ld\n", check_state.checks, check_state.wrong);
  fflush(stdout);
  return check_state.wrong != 0 || check_state.checks == 0;
}

#endif
