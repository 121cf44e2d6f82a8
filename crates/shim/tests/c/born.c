/* Masks of argv[1] threads at their creation, one after the other and all alive. With argv[2], the creator first narrows
   its own mask to this. */
#include "seen.h"

int main(int count, char **words) {
  int threads = atoi(words[1]);
  struct sitter *them = calloc(threads, sizeof *them);
  if (count > 2) narrow(words[2]);
  printf("%s:", here());
  for (int i = 0; i < threads; i++) printf(" %s", start_sitting(&them[i], NULL));
  puts("");
  for (int i = 0; i < threads; i++) stop_sitting(&them[i]);
}
