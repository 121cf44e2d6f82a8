/* A program that other programs start. Prints its arguments, a variable, and whether the library is to be preloaded. With BUSY it
   could start programs, for which the library would be of use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
  const char *mark = getenv("MARK"), *preload = getenv("LD_PRELOAD");
  for (int at = 1; at < count; at++) printf("%s ", words[at]);
  printf("mark %s ", mark ? mark : "none");
  printf("library %s\n", !preload || !*preload ? "none" : strstr(preload, "libtrimtab_shim.so") ? "ours" : preload);
#ifdef BUSY
  if (count > 100) return system("true");
#endif
  return 7;
}
