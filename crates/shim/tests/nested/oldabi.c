/* The functions that compilers before GCC 4.9 called, and one that none calls now: the caller runs the outlined function
   itself, between a start and an end, and its data lies on its stack. */
#include "check.h"

typedef void body(void *);
extern void GOMP_parallel_start(body *, void *, unsigned);
extern void GOMP_parallel_end(void);
extern void GOMP_parallel_loop_static_start(body *, void *, unsigned, long, long, long, long);
extern void GOMP_parallel_loop_dynamic_start(body *, void *, unsigned, long, long, long, long);
extern void GOMP_parallel_loop_guided_start(body *, void *, unsigned, long, long, long, long);
extern void GOMP_parallel_loop_runtime_start(body *, void *, unsigned, long, long, long);
extern void GOMP_parallel_sections_start(body *, void *, unsigned, unsigned);
extern void GOMP_parallel_loop_static(body *, void *, unsigned, long, long, long, long, unsigned);
extern char GOMP_loop_static_next(long *, long *);
extern char GOMP_loop_dynamic_next(long *, long *);
extern char GOMP_loop_guided_next(long *, long *);
extern char GOMP_loop_runtime_next(long *, long *);
extern void GOMP_loop_end_nowait(void);
extern unsigned GOMP_sections_next(void);
extern void GOMP_sections_end_nowait(void);

struct work {
  long sum;
  int met;
};

static void plain(void *data) {
  struct work *work = (struct work *)data;
  check("plain"), meet(&work->met, 2), add(&work->sum, omp_get_thread_num() + 1);
}

#define LOOP(kind) \
  static void kind##_loop(void *data) { \
    struct work *work = (struct work *)data; \
    long from, to; \
    check(#kind " start"); \
    if (GOMP_loop_##kind##_next(&from, &to)) do { \
        for (long i = from; i < to; i++) check(#kind), meet(&work->met, 2), add(&work->sum, i + 1); \
      } while (GOMP_loop_##kind##_next(&from, &to)); \
    GOMP_loop_end_nowait(); \
    check(#kind " end"); \
  }
LOOP(static)
LOOP(dynamic)
LOOP(guided)
LOOP(runtime)

static void some_sections(void *data) {
  struct work *work = (struct work *)data;
  for (unsigned i; (i = GOMP_sections_next()) != 0;) check("section"), meet(&work->met, 2), add(&work->sum, i);
  GOMP_sections_end_nowait();
}

#define RUN(call, function) \
  do { \
    struct work work = {0, 0}; \
    call; \
    function(&work); \
    GOMP_parallel_end(); \
    check_true(work.sum == 3); \
  } while (0)

static void all(void) {
  RUN(GOMP_parallel_start(plain, &work, 2), plain);
  RUN(GOMP_parallel_loop_static_start(static_loop, &work, 2, 0, 2, 1, 1), static_loop);
  RUN(GOMP_parallel_loop_dynamic_start(dynamic_loop, &work, 2, 0, 2, 1, 1), dynamic_loop);
  RUN(GOMP_parallel_loop_guided_start(guided_loop, &work, 2, 0, 2, 1, 1), guided_loop);
  RUN(GOMP_parallel_loop_runtime_start(runtime_loop, &work, 2, 0, 2, 1), runtime_loop);
  RUN(GOMP_parallel_sections_start(some_sections, &work, 2, 2), some_sections);
  struct work work = {0, 0};
  GOMP_parallel_loop_static(static_loop, &work, 2, 0, 2, 1, 1, 0);
  check_true(work.sum == 3);
}

static void nest(void *data) {
  check("outer");
  all();
  check("outer, after");
  /* The call of today's compilers, in between. */
#pragma omp parallel num_threads(2)
  check("new in old");
  add((long *)data, 1);
}

int main(void) {
  omp_set_max_active_levels(3);
  for (int again = 0; again < 20; again++) {
    long done = 0;
    all();
    check_original("between");
    GOMP_parallel_start(nest, &done, 2);
    nest(&done);
    GOMP_parallel_end();
    check_true(done == 2);
    check_original("after");
#pragma omp parallel num_threads(2)
    all(), check("old in new");
  }
  return check_end();
}
