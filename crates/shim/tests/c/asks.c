/* Threads that ask the C library for their mask: created on slots, with a mask in the attribute, after a
   mask was set. Each line gives the kernel's mask of the thread, and the answers of the calls. argv[1]
   "child": only the line of the initial thread. */
#include "seen.h"
#include <spawn.h>

extern char **environ;

static pid_t task(void) { return (pid_t)syscall(SYS_gettid); }

/* The answers of all calls, printed once if they agree. */
static const char *told(char text[24]) {
  cpu_set_t one, two, three;
  char other[24];
  CHECK(sched_getaffinity(0, sizeof one, &one) == 0);
  CHECK(sched_getaffinity(task(), sizeof two, &two) == 0);
  CHECK(pthread_getaffinity_np(pthread_self(), sizeof three, &three) == 0);
  CHECK(strcmp(letters_of(&one, text), letters_of(&two, other)) == 0);
  CHECK(strcmp(text, letters_of(&three, other)) == 0);
  return text;
}

static void say(const char *what) {
  char text[24];
  printf("%s: %s told %s online %ld\n", what, here(), told(text), sysconf(_SC_NPROCESSORS_ONLN));
  fflush(stdout);
}

static void *born(void *what) { return say((const char *)what), NULL; }

static void run(void *(*routine)(void *), const char *what, const char *letters) {
  pthread_attr_t attr;
  pthread_t thread;
  CHECK(pthread_attr_init(&attr) == 0);
  if (letters) {
    cpu_set_t set = set_of(letters);
    CHECK(pthread_attr_setaffinity_np(&attr, sizeof set, &set) == 0);
  }
  CHECK(pthread_create(&thread, &attr, routine, (void *)what) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_attr_destroy(&attr) == 0);
}

static void *sets_by_task(void *letters) {
  cpu_set_t set = set_of((const char *)letters);
  CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
  return say("set by task"), NULL;
}

static void *sets_by_thread(void *letters) {
  cpu_set_t set = set_of((const char *)letters);
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0);
  return say("set by thread"), NULL;
}

static void *fails_to_set(void *none) {
  cpu_set_t nothing;
  CPU_ZERO(&nothing);
  CHECK(sched_setaffinity(0, sizeof nothing, &nothing) == -1 && errno == EINVAL);
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof nothing, &nothing) == EINVAL);
  return say("not set"), none;
}

static void *restores(void *none) {
  cpu_set_t before;
  CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
  narrow("B");
  say("moved");
  CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
  return say("restored"), none;
}

static char text[24];
static void say_kernel(char *words) { strcpy(words, here()); }
static void say_told(char *words) { told(words); }

static void spawn(const char *what) {
  char *words[] = {(char *)"asks", (char *)"child", (char *)what, NULL};
  pid_t child;
  int status;
  fflush(stdout);
  CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *has_children(void *letters) {
  if (letters) narrow((const char *)letters);
  printf("forked: %s", child_says(text, say_kernel));
  printf(" told %s\n", child_says(text, say_told));
  return spawn("spawned"), NULL;
}

/* Thread that waits while another thread asks for its mask, or binds it. */
struct waits {
  pthread_t thread;
  pid_t task;
  int go;
  char kernel[24], told[24];
};

static void *wait_to_be_let_go(void *at) {
  struct waits *me = (struct waits *)at;
  __atomic_store_n(&me->task, task(), __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&me->go, __ATOMIC_SEQ_CST)) usleep(10);
  strcpy(me->kernel, here()), told(me->told);
  return NULL;
}

static void let_go(struct waits *it) {
  __atomic_store_n(&it->go, 1, __ATOMIC_SEQ_CST);
  CHECK(pthread_join(it->thread, NULL) == 0);
}

static void about_others(void) {
  cpu_set_t set, one = set_of("A");
  char other[24];
  struct waits it = {0};
  CHECK(pthread_create(&it.thread, NULL, wait_to_be_let_go, &it) == 0);
  while (!__atomic_load_n(&it.task, __ATOMIC_SEQ_CST)) usleep(10);
  CHECK(sched_getaffinity(it.task, sizeof set, &set) == 0);
  printf("of another: %s", letters_of(&set, text));
  CHECK(pthread_getaffinity_np(it.thread, sizeof set, &set) == 0);
  printf(" %s\n", letters_of(&set, other));
  CHECK(sched_setaffinity(it.task, sizeof one, &one) == 0);
  let_go(&it);
  printf("set by another: %s told %s\n", it.kernel, it.told);
}

/* The creator binds a thread as soon as it has the pthread_t: mostly before the thread has run. */
static void bound_at_once(void) {
  cpu_set_t one = set_of("A");
  int right = 0;
  for (int i = 0; i < 2000; i++) {
    struct waits it = {0};
    CHECK(pthread_create(&it.thread, NULL, wait_to_be_let_go, &it) == 0);
    CHECK(pthread_setaffinity_np(it.thread, sizeof one, &one) == 0);
    let_go(&it);
    right += strcmp(it.kernel, "A") == 0 && strcmp(it.told, "A") == 0;
  }
  printf("bound at once: %d\n", right);
}

int main(int count, char **words) {
  if (count > 2) return say(words[2]), 0;
  say("initial");
  run(born, "born", NULL);
  run(born, "attribute", "A");
  run(born, "attribute", "B");
  run(sets_by_task, "A", NULL);
  run(sets_by_thread, "A", NULL);
  run(sets_by_thread, "B", NULL);
  run(born, "born later", NULL);
  run(fails_to_set, NULL, NULL);
  run(restores, NULL, NULL);
  about_others();
  run(has_children, NULL, NULL);
  run(has_children, "A", NULL);
  bound_at_once();
  run(born, "born last", NULL);
}
