/* Threads with every kind of attribute: the thread itself must find the requested values. Prints all values,
   so that a run with the shim and one without can be compared; the last word of each line is the mask. */
#include "seen.h"
#include <signal.h>
#include <sys/mman.h>

static const char *name;

static void *look(void *want_) {
  pthread_attr_t attr;
  CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
  int detached, inherit, policy, scope, now;
  size_t guard, size;
  void *stack;
  struct sched_param param, param_now;
  CHECK(pthread_attr_getdetachstate(&attr, &detached) == 0);
  CHECK(pthread_attr_getguardsize(&attr, &guard) == 0);
  CHECK(pthread_attr_getstack(&attr, &stack, &size) == 0);
  CHECK(pthread_attr_getinheritsched(&attr, &inherit) == 0);
  CHECK(pthread_attr_getschedpolicy(&attr, &policy) == 0);
  CHECK(pthread_attr_getschedparam(&attr, &param) == 0);
  CHECK(pthread_attr_getscope(&attr, &scope) == 0);
  CHECK(pthread_getschedparam(pthread_self(), &now, &param_now) == 0);
  sigset_t blocked;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
  pthread_attr_destroy(&attr);
  char local;
  CHECK(&local > (char *)stack && &local < (char *)stack + size);
  if (want_) CHECK(stack == want_);
  printf("%s: detached %d guard %zu size %zu own %d inherit %d policy %d/%d param %d/%d scope %d usr1 %d usr2 %d mask %s\n",
         name, detached, guard, size, want_ != NULL, inherit, policy, now, param.sched_priority,
         param_now.sched_priority, scope, sigismember(&blocked, SIGUSR1), sigismember(&blocked, SIGUSR2), here());
  fflush(stdout);
  return NULL;
}

static void try(const char *what, const pthread_attr_t *attr, void *stack) {
  pthread_t thread;
  int detached = 0;
  name = what;
  if (attr) pthread_attr_getdetachstate(attr, &detached);
  errno = 1234;
  int status = pthread_create(&thread, attr, look, stack);
  int after = errno;
  CHECK(status || after == 1234);
  if (status) printf("%s: refused with %d, errno %d\n", what, status, after);
  else if (detached) usleep(100000);
  else CHECK(pthread_join(thread, NULL) == 0);
}

#define WITH(what, ...) \
  do { \
    pthread_attr_t attr, *at = &attr; \
    void *stack = NULL; \
    CHECK(pthread_attr_init(at) == 0); \
    __VA_ARGS__; \
    try(what, at, stack); \
    CHECK(pthread_attr_destroy(at) == 0); \
  } while (0)

int main(void) {
  const size_t size = 1 << 20;
  struct sched_param five = {.sched_priority = 5}, none = {.sched_priority = 0};
  sigset_t usr1, usr2;
  sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
  sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);

  try("null", NULL, NULL);
  WITH("empty");
  WITH("stack size", pthread_attr_setstacksize(at, 3 << 20));
  WITH("least stack", pthread_attr_setstacksize(at, 16384));
  WITH("guard", pthread_attr_setguardsize(at, 5 << 12));
  WITH("no guard", pthread_attr_setguardsize(at, 0));
  WITH("own stack", stack = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
       pthread_attr_setstack(at, stack, size));
  WITH("detached", pthread_attr_setdetachstate(at, PTHREAD_CREATE_DETACHED));
  WITH("inherit", pthread_attr_setinheritsched(at, PTHREAD_INHERIT_SCHED), pthread_attr_setschedpolicy(at, SCHED_FIFO),
       pthread_attr_setschedparam(at, &five));
  WITH("explicit nothing", pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED));
  WITH("explicit other", pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED),
       pthread_attr_setschedpolicy(at, SCHED_OTHER), pthread_attr_setschedparam(at, &none));
  WITH("explicit batch", pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED),
       pthread_attr_setschedpolicy(at, SCHED_BATCH));
  WITH("explicit fifo", pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED),
       pthread_attr_setschedpolicy(at, SCHED_FIFO), pthread_attr_setschedparam(at, &five));
  WITH("explicit fifo, no priority", pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED),
       pthread_attr_setschedpolicy(at, SCHED_FIFO));
  WITH("scope", pthread_attr_setscope(at, PTHREAD_SCOPE_SYSTEM));
#if __GLIBC_PREREQ(2, 32)
  WITH("signals", pthread_attr_setsigmask_np(at, &usr2));
  WITH("signals taken back", pthread_attr_setsigmask_np(at, &usr2), pthread_attr_setsigmask_np(at, NULL));
#endif
  WITH("everything", pthread_attr_setguardsize(at, 2 << 12), pthread_attr_setstacksize(at, 5 << 18),
       pthread_attr_setdetachstate(at, PTHREAD_CREATE_DETACHED),
       pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED), pthread_attr_setschedpolicy(at, SCHED_IDLE));
  WITH("impossible stack", pthread_attr_setstacksize(at, (size_t)1 << 60));

  pthread_attr_t standard;
  CHECK(pthread_getattr_default_np(&standard) == 0);
  pthread_attr_setstacksize(&standard, 7 << 18);
  pthread_attr_setguardsize(&standard, 3 << 12);
  CHECK(pthread_setattr_default_np(&standard) == 0);
  try("null, new default", NULL, NULL);
  WITH("empty, new default");

  CHECK(sched_setscheduler(0, SCHED_BATCH, &none) == 0);
  WITH("explicit nothing, creator batch", pthread_attr_setinheritsched(at, PTHREAD_EXPLICIT_SCHED));
  WITH("inherit, creator batch");
}
