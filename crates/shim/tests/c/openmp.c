/* Masks of the threads of a parallel region, and of two threads of the program's own. argv[1]: narrow the initial thread
   to this mask first. */
#include "seen.h"
#include <omp.h>

int main(int count, char **words) {
  char masks[8][24];
  int team = 0;
  if (count > 1) narrow(words[1]);
  for (int again = 0; again < 2; again++) {
#pragma omp parallel num_threads(2)
    {
      team = omp_get_num_threads();
      strcpy(masks[omp_get_thread_num()], here());
    }
  }
  printf("team:");
  for (int i = 0; i < team; i++) printf(" %s", masks[i]);
  struct sitter one, two;
  printf(" initial: %s own: %s", here(), start_sitting(&one, NULL));
  printf(" %s\n", start_sitting(&two, NULL));
  stop_sitting(&one), stop_sitting(&two);
}
