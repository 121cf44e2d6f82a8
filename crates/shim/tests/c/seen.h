/* Masks of threads in the letters of the tests: CPU A and CPU B. */
#ifndef SEEN_H
#define SEEN_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
      _exit(1); \
    } \
  } while (0)

static inline int cpu(char letter) {
  const char *number = getenv(letter == 'A' ? "CPU_A" : "CPU_B");
  CHECK(number);
  return atoi(number);
}

static int cpu_a = -1, cpu_b = -1; /* kept, for programs that lose their environment */
__attribute__((constructor)) static void letters(void) { cpu_a = cpu('A'), cpu_b = cpu('B'); }

static inline cpu_set_t set_of(const char *letters) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (; *letters; letters++) CPU_SET(*letters == 'A' ? cpu_a : cpu_b, &set);
  return set;
}

/* A mask in letters: "A", "B", "AB", or "?" and the number of CPUs. */
static inline const char *letters_of(const cpu_set_t *set, char text[24]) {
  int a = CPU_ISSET(cpu_a, set) != 0, b = CPU_ISSET(cpu_b, set) != 0;
  if (CPU_COUNT(set) != a + b) snprintf(text, 24, "?%d", CPU_COUNT(set));
  else snprintf(text, 24, "%s%s", a ? "A" : "", b ? "B" : "");
  return text;
}

/* The calling thread's mask by a system call, since the C library's answer differs for a thread on a
   slot. */
static inline const char *here(void) {
  static __thread char text[24];
  cpu_set_t set;
  CPU_ZERO(&set);
  CHECK(syscall(SYS_sched_getaffinity, 0, sizeof set, &set) > 0);
  return letters_of(&set, text);
}

static inline int is_here(const char *letters) { return strcmp(here(), letters) == 0; }

static inline void narrow(const char *letters) {
  cpu_set_t set = set_of(letters);
  CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* Thread that reports its mask and then waits until it is released. */
struct sitter {
  pthread_t thread;
  char mask[24];
  int leave, seen;
  pthread_mutex_t lock;
  pthread_cond_t news;
};

static inline void *sit(void *at) {
  struct sitter *me = (struct sitter *)at;
  pthread_mutex_lock(&me->lock);
  strcpy(me->mask, here());
  me->seen = 1;
  pthread_cond_broadcast(&me->news);
  while (!me->leave) pthread_cond_wait(&me->news, &me->lock);
  pthread_mutex_unlock(&me->lock);
  return me;
}

/* Starts a sitter and prints its mask at its creation. */
static inline const char *start_sitting(struct sitter *it, const pthread_attr_t *attr) {
  memset(it, 0, sizeof *it);
  pthread_mutex_init(&it->lock, NULL);
  pthread_cond_init(&it->news, NULL);
  CHECK(pthread_create(&it->thread, attr, sit, it) == 0);
  pthread_mutex_lock(&it->lock);
  while (!it->seen) pthread_cond_wait(&it->news, &it->lock);
  pthread_mutex_unlock(&it->lock);
  return it->mask;
}

static inline void stop_sitting(struct sitter *it) {
  void *result;
  pthread_mutex_lock(&it->lock);
  it->leave = 1;
  pthread_cond_broadcast(&it->news);
  pthread_mutex_unlock(&it->lock);
  CHECK(pthread_join(it->thread, &result) == 0 && result == it);
}

/* Reads the mask that a child process reports into "text". */
static inline const char *child_says(char text[24], void (*say)(char *)) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char words[24] = "";
    say(words);
    CHECK(write(ends[1], words, sizeof words) == sizeof words);
    _exit(0);
  }
  int status;
  CHECK(read(ends[0], text, 24) == 24);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  close(ends[0]), close(ends[1]);
  return text;
}

#endif
