/* A program without OpenMP opens libraries with OpenMP: argv has pairs of a mode (local, global, deep) and a file.
   "threads" before the pairs: each library is used by a thread of its own, the first at first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static long checks, wrong;

static void *use(void *plugin) {
  long looked = 0;
  long (*count)(const char *, long *) = (long (*)(const char *, long *))dlsym(plugin, "plug_in_wrong");
  wrong += count("", &looked);
  checks += looked;
  return NULL;
}

int main(int count, char **words) {
  void *plugins[8];
  int opened = 0, threads = count > 1 && strcmp(words[1], "threads") == 0;
  for (int i = 1 + threads; i + 1 < count && opened < 8; i += 2) {
    int way = strcmp(words[i], "deep") == 0 ? RTLD_DEEPBIND : strcmp(words[i], "global") == 0 ? RTLD_GLOBAL : 0;
    plugins[opened] = dlopen(words[i + 1], RTLD_NOW | way);
    if (!plugins[opened]) return fprintf(stderr, "%s\n", dlerror()), 2;
    opened++;
  }
  for (int again = 0; again < 3; again++) {
    for (int i = 0; i < opened; i++) {
      pthread_t thread;
      if (!threads) use(plugins[i]);
      else if (pthread_create(&thread, NULL, use, plugins[i]) != 0 || pthread_join(thread, NULL) != 0) return 2;
    }
  }
  printf("checks %ld wrong %ld\n", checks, wrong);
  return wrong != 0 || checks == 0;
}
