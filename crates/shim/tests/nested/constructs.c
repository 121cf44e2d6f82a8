/* Every construct that makes a team, on the first level and inside a team of two; C and C++ alike. */
#include "check.h"

/* Each construct has two threads wait for each other, so that both are checked, and counts its work, so that none is lost or done
   twice. `two` is 2 but the compiler cannot know: bounds that vary and bounds that do not call different functions of
   the runtime. */
static volatile int two_ = 2;

#define PRAGMA(...) _Pragma(#__VA_ARGS__)
#define LOOP(name, type, bound, ...) \
  static void name(int two) { \
    int met = 0; \
    long sum = 0; \
    (void)two; \
    PRAGMA(omp parallel for num_threads(2) __VA_ARGS__) \
    for (type i = 0; i < bound; i++) { \
      check(#name), meet(&met, 2), add(&sum, (long)i + 1); \
    } \
    check_true(sum == 3); \
  }
#define LOOPS(name, ...) \
  LOOP(name##_constant, int, 2, __VA_ARGS__) \
  LOOP(name##_variable, int, two, __VA_ARGS__) \
  LOOP(name##_wide_constant, unsigned long long, 2, __VA_ARGS__) \
  LOOP(name##_wide_variable, unsigned long long, (unsigned long long)two, __VA_ARGS__)
#define RUN(name) name##_constant(two), name##_variable(two), name##_wide_constant(two), name##_wide_variable(two)

LOOPS(plain, if(1))
LOOPS(fixed, schedule(static))
LOOPS(fixed_chunks, schedule(static, 1))
LOOPS(dynamic, schedule(dynamic))
LOOPS(dynamic_chunks, schedule(dynamic, 1))
LOOPS(guided, schedule(guided))
LOOPS(at_run_time, schedule(runtime))
LOOPS(automatic, schedule(auto))
LOOPS(monotonic_dynamic, schedule(monotonic : dynamic))
LOOPS(monotonic_guided, schedule(monotonic : guided))
LOOPS(monotonic_runtime, schedule(monotonic : runtime))
LOOPS(nonmonotonic_dynamic, schedule(nonmonotonic : dynamic))
LOOPS(nonmonotonic_guided, schedule(nonmonotonic : guided))
LOOPS(nonmonotonic_runtime, schedule(nonmonotonic : runtime))

static void region(void) {
  int met = 0;
  long sum = 0;
#pragma omp parallel num_threads(2)
  check("region"), meet(&met, 2), add(&sum, omp_get_thread_num() + 1);
  check_true(sum == 3);
}

static void region_with_data(int two) {
  int met = 0, private_one = 1, last = 0;
  long sum = 0;
#pragma omp parallel num_threads(2) firstprivate(private_one) reduction(+ : sum) shared(met)
  check("region_with_data"), meet(&met, 2), sum += private_one;
  check_true(sum == 2);
#pragma omp parallel for num_threads(2) schedule(monotonic : dynamic) lastprivate(last) /* libomp 14 loses others */
  for (int i = 0; i < two; i++) check("lastprivate"), last = i;
  check_true(last == 1);
}

static void split(int two) {
  int met = 0, entered = 0;
  long sum = 0;
#pragma omp parallel num_threads(2)
  {
    check("split"), meet(&entered, 2);
#pragma omp for schedule(dynamic) nowait
    for (int i = 0; i < two; i++) check("split loop"), meet(&met, 2), add(&sum, i + 1);
#pragma omp barrier
#pragma omp single
    check("single");
#pragma omp critical
    check("critical");
  }
  check_true(sum == 3);
}

static void ordered(int two) {
  long order = 0;
#pragma omp parallel for num_threads(2) ordered schedule(dynamic)
  for (int i = 0; i < two; i++) {
#pragma omp ordered
    check("ordered"), order = order * 10 + i + 1;
  }
  check_true(order == 12);
  int across = 0;
#pragma omp parallel for num_threads(2) ordered(1) schedule(static, 1)
  for (int i = 0; i < two; i++) {
#pragma omp ordered depend(sink : i - 1)
    check("across"), across = across * 10 + i + 1;
#pragma omp ordered depend(source)
  }
  check_true(across == 12);
}

static void collapsed(int two) {
  int met = 0;
  long sum = 0;
#pragma omp parallel for num_threads(2) collapse(2) schedule(dynamic)
  for (int i = 0; i < 1; i++)
    for (int j = 0; j < 2; j++) check("collapse_constant"), meet(&met, 2), add(&sum, i + j + 1);
  check_true(sum == 3);
  met = 0, sum = 0;
#pragma omp parallel for num_threads(2) collapse(2) schedule(guided)
  for (int i = 0; i < two; i++)
    for (int j = 0; j < two - 1; j++) check("collapse_variable"), meet(&met, 2), add(&sum, i + j + 1);
  check_true(sum == 3);
}

static void simd(void) {
  int met = 0;
  double numbers[64];
#pragma omp parallel for simd num_threads(2) schedule(static)
  for (int i = 0; i < 64; i++) numbers[i] = i;
#pragma omp parallel num_threads(2)
  check("after simd"), meet(&met, 2);
  check_true(numbers[63] == 63);
}

static void sections(void) {
  int met = 0;
  long sum = 0;
#pragma omp parallel sections num_threads(2)
  {
#pragma omp section
    check("section 0"), meet(&met, 2), add(&sum, 1);
#pragma omp section
    check("section 1"), meet(&met, 2), add(&sum, 2);
  }
  check_true(sum == 3);
}

static void task_reduction(void) {
  int met = 0, sum = 0;
#pragma omp parallel num_threads(2) reduction(task, + : sum)
  {
    check("task_reduction"), meet(&met, 2);
    sum += 1;
#pragma omp task in_reduction(+ : sum)
    check("task of a reduction"), sum += 10;
  }
  check_true(sum == 22);
  int product = 1;
#pragma omp parallel for num_threads(2) reduction(task, * : product)
  for (int i = 0; i < 2; i++) {
    check("task_reduction loop"), product *= 2;
#pragma omp task in_reduction(* : product)
    product *= 3;
  }
  check_true(product == 36);
  int most = 0;
#pragma omp parallel sections num_threads(2) reduction(task, max : most)
  {
#pragma omp section
    {
      check("task_reduction section");
#pragma omp task in_reduction(max : most)
      most = most > 5 ? most : 5;
    }
  }
  check_true(most == 5);
}

static void tasks(void) {
  int ready = 0;
  long sum = 0;
#pragma omp parallel num_threads(2)
  {
    meet(&ready, 2);
#pragma omp single
    {
#pragma omp taskloop num_tasks(2) shared(sum)
      for (int i = 0; i < 2; i++) check("taskloop"), add(&sum, i + 1);
#pragma omp task shared(sum)
      check("task"), add(&sum, 4);
#pragma omp task shared(sum) if (0)
      check("task at once"), add(&sum, 8);
#pragma omp taskwait
#pragma omp taskgroup
      {
#pragma omp task shared(sum) untied
        check("task of a group"), add(&sum, 16);
      }
    }
  }
  check_true(sum == 31);
}

static void master(void) {
  long sum = 0;
#pragma omp parallel master num_threads(2)
  check("master"), add(&sum, 1);
#pragma omp parallel master taskloop num_threads(2) shared(sum)
  for (int i = 0; i < 2; i++) check("master taskloop"), add(&sum, 1);
#pragma omp parallel num_threads(2)
  {
#if (defined __clang__ ? __clang_major__ : __GNUC__) >= 12
#pragma omp masked filter(1)
#else
#pragma omp master
#endif
    check("masked"), add(&sum, 1);
  }
  check_true(sum == 4);
}

static void cancelled(int two) {
#pragma omp parallel num_threads(2)
  {
#pragma omp for schedule(static) /* libomp 14 does not survive it in others */
    for (int i = 0; i < two * 10; i++) {
      check("cancelled loop");
#pragma omp cancel for
    }
  }
#pragma omp parallel num_threads(2)
  {
    check("cancelled region");
#pragma omp cancel parallel
#pragma omp cancellation point parallel
  }
}

static void constructs(int two) {
  region();
  RUN(plain), RUN(fixed), RUN(fixed_chunks), RUN(dynamic), RUN(dynamic_chunks), RUN(guided), RUN(at_run_time);
  RUN(automatic), RUN(monotonic_dynamic), RUN(monotonic_guided), RUN(monotonic_runtime), RUN(nonmonotonic_dynamic);
  RUN(nonmonotonic_guided), RUN(nonmonotonic_runtime);
  region_with_data(two), split(two), ordered(two), collapsed(two), simd(), sections(), task_reduction(), tasks();
  master(), cancelled(two);
}

int main(void) {
  int two = two_;
  omp_set_max_active_levels(4);
  for (int again = 0; again < 3; again++) {
    check_original("before");
    constructs(two);
    check_original("between");
#pragma omp parallel num_threads(2)
    {
      check("outer");
#pragma omp barrier
      constructs(two);
      check("outer, after");
    }
    check_original("after");
  }
  return check_end();
}
