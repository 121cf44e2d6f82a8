/* Programs that do unusual things first; then start two threads. argv[1] selects the program. */
#include "seen.h"
#include <dirent.h>
#include <signal.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

extern char **environ;
static volatile sig_atomic_t ticks, asked;

static void close_everything(void) {
  for (int fd = 3; fd < 4096; fd++) close(fd);
  close(0), close(2);
}
static void overwrite_environment(void) {
  for (char **entry = environ; *entry; entry++) memset(*entry, 'x', strlen(*entry));
}
static void use_up_keys(void) {
  pthread_key_t key;
  while (pthread_key_create(&key, NULL) == 0) continue;
}
static void tick(int signal) {
  ticks++, asked += sysconf(_SC_NPROCESSORS_ONLN) > 0 && sysconf(_SC_PAGESIZE) > 0, (void)signal;
}
static void *brief(void *none) { return none; }
static void storm(void) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
  for (int i = 0; i < 4000 || ticks < 20; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, brief, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && asked == ticks);
}
static void *creates(void *none) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, brief, NULL) == 0 && pthread_join(thread, NULL) == 0);
  return none;
}
static void create_on_a_little_stack(void) {
  pthread_attr_t attr;
  pthread_t thread;
  CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 16384) == 0);
  CHECK(pthread_create(&thread, &attr, creates, NULL) == 0 && pthread_join(thread, NULL) == 0);
}
static int c11(void *it) { return *(int *)it; }
static void c11_threads(void) {
  for (int i = 0; i < 100; i++) {
    thrd_t thread;
    int result;
    CHECK(thrd_create(&thread, c11, &i) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result == i);
  }
}
static volatile sig_atomic_t rung;
static void ring(union sigval value) { rung = value.sival_int; }
static void timer_thread(void) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 9, .sigev_notify_function = ring};
  struct itimerspec soon = {.it_value.tv_nsec = 1000000};
  timer_t timer;
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
  while (rung != 9) usleep(1000);
  CHECK(timer_delete(timer) == 0);
}

int main(int count, char **words) {
  struct { const char *name; void (*act)(void); } acts[] = {
    {"nothing", NULL},           {"descriptors", close_everything}, {"environment", overwrite_environment},
    {"keys", use_up_keys},       {"signals", storm},                {"c11", c11_threads},
    {"timer", timer_thread},     {"stack", create_on_a_little_stack},
  };
  CHECK(count == 2);
  for (unsigned i = 0; i < sizeof acts / sizeof *acts; i++)
    if (strcmp(acts[i].name, words[1]) == 0 && acts[i].act) acts[i].act();
  struct sitter one, two;
  printf("%s:", here());
  printf(" %s", start_sitting(&one, NULL));
  printf(" %s\n", start_sitting(&two, NULL));
  stop_sitting(&one), stop_sitting(&two);
}
