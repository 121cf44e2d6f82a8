/* Thousands of regions on several levels. argv[1]: number of rounds. */
#include "check.h"

static void leaf(void) {
#pragma omp parallel num_threads(2)
  check("leaf");
}

int main(int count, char **words) {
  int rounds = count > 1 ? atoi(words[1]) : 180;
  omp_set_max_active_levels(3);
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < 10; i++) leaf();
#pragma omp parallel num_threads(2)
    {
      check("outer");
      for (int i = 0; i < 5; i++) leaf(), check("outer, between");
#pragma omp for schedule(dynamic)
      for (int i = 0; i < 8; i++) check("loop");
      if (round % 16 == 0) {
#pragma omp parallel num_threads(2)
        leaf(), check("middle");
      }
    }
    if (round % 16 == 0) check_original("between");
  }
  return check_end();
}
