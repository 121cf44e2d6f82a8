/* Opens a library (argv[1]) in the mode argv[2] and prints the masks of its constructor's threads. */
#include "seen.h"
#include <dlfcn.h>

int main(int count, char **words) {
  CHECK(count == 3);
  int deep = strcmp(words[2], "deep") == 0;
  for (int i = 0; i < 3; i++) {
    void *plugin = dlopen(words[1], RTLD_NOW | (deep ? RTLD_DEEPBIND : 0));
    if (!plugin) fprintf(stderr, "%s\n", dlerror());
    CHECK(plugin != NULL);
    printf("%s %s\n", (char *)dlsym(plugin, "outer_mask"), (char *)dlsym(plugin, "inner_mask"));
    CHECK(dlclose(plugin) == 0);
  }
  struct sitter one;
  printf("%s\n", start_sitting(&one, NULL));
  stop_sitting(&one);
}
