/* Becomes another program (argv[1]) out of a running team. */
#include "check.h"

int main(int count, char **words) {
  if (count < 2) return 2;
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) execv(words[1], words + 1);
  else
    for (;;) sleep(1);
  return 2;
}
