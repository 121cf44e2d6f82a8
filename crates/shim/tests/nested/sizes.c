/* Teams of other sizes than declared, regions that stay alone, tasks that open regions, levels below the declared ones.
   argv[1]: "even" if inner teams spread over all CPUs. */
#include "check.h"

static int even, never;

/* A function of LLVM's runtime and its relatives: version 14 crashes by itself, about once in a thousand runs, if teams
   change their sizes concurrently. There they do it in turns. */
extern int kmp_get_blocktime(void) __attribute__((weak));

static int cpu_of(const struct mask *mask) {
  for (int cpu = 0; cpu < (int)CPUS; cpu++)
    if (mask_has(mask, cpu)) return cpu;
  return -1;
}

/* A team of any size: each thread has its mask, and the CPUs of a large team shared evenly. */
static void team(int size) {
  int cpus[16], inside = omp_get_level();
#pragma omp parallel num_threads(size)
  {
    struct mask here = mask_here();
    check("team");
    cpus[omp_get_thread_num()] = cpu_of(&here);
    check_true(omp_get_num_threads() == size && omp_get_level() == inside + 1);
  }
  if (check_state.everywhere || inside >= check_state.levels || size <= 2) return;
  /* Inner teams keep to their master's part, or take turns with others if too many are open. */
  if (inside && (!even || inside > 1 || omp_get_team_size(1) > check_state.shape[0])) return;
  int first = 0;
  for (int i = 0; i < size; i++) first += cpus[i] == cpus[0];
  check_true(first >= size / 2 && first <= (size + 1) / 2);
}

static void alone(void) {
  check("before alone");
#pragma omp parallel if (never) num_threads(2)
  {
    check("alone");
    check_true(omp_get_num_threads() == 1);
    team(2);
    check("alone, after");
  }
  team(1);
#pragma omp parallel num_threads(1)
  team(2);
  check("after alone");
}

/* A task runs on whichever thread takes it, and its regions belong to that thread. */
static void tasks_with_regions(void) {
  long done = 0;
#pragma omp parallel num_threads(2)
  {
#pragma omp single nowait
    for (int i = 0; i < 16; i++) {
#pragma omp task shared(done)
      {
        check("task");
        team(2);
        check("task, after a region");
        add(&done, 1);
      }
    }
#pragma omp taskwait
#pragma omp task shared(done)
    {
#pragma omp task shared(done)
      team(2), add(&done, 1);
#pragma omp taskwait
      add(&done, 1);
    }
  }
  check_true(done == 20);
}

int main(int count, char **words) {
  static const int sizes[] = {2, 1, 2, 4, 3, 2, 5, 1, 2, 8, 2};
  const int number = sizeof sizes / sizeof *sizes;
  even = count > 1 && strcmp(words[1], "even") == 0;
  never = count > 2;
  omp_set_max_active_levels(4);
  for (int i = 0; i < number; i++) {
    team(sizes[i]);
    check_original("between sizes");
  }
  for (int i = 0; i < number; i++) {
#pragma omp parallel num_threads(sizes[i])
    {
      for (int j = 0; j < number; j++) {
        int size = sizes[(j + omp_get_thread_num()) % number];
        if (!kmp_get_blocktime) team(size);
        else {
#pragma omp critical
          team(size);
        }
        check("outer, between sizes");
      }
    }
    check_original("between large and small");
  }
#pragma omp parallel num_threads(2)
  {
#pragma omp parallel num_threads(2)
    {
      team(2);
      team(3);
#pragma omp parallel num_threads(2)
      team(2);
      check("middle");
    }
    alone();
  }
  alone();
  check_original("after alone");
  for (int again = 0; again < 5; again++) tasks_with_regions();
#pragma omp parallel num_threads(2)
  tasks_with_regions();
  check_original("after tasks");
  omp_set_max_active_levels(1);
#pragma omp parallel num_threads(2)
  {
#pragma omp parallel num_threads(2)
    check("not nested"), check_true(omp_get_num_threads() == 1);
    check("after one not nested");
  }
  check_original("end");
  return check_end();
}
