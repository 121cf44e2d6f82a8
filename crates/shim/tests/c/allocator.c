/* An allocator that asks for the number of CPUs and the page size as it starts, at the first allocation of the
   process, and creates a thread of its own from inside an allocation. Never frees. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

long cpus_at_start, page_at_start;
atomic_int helpers;

static _Alignas(64) char room[256 << 20];
static atomic_size_t used;
static atomic_int state;
static atomic_long calls;
static __thread int inside;

static void *help(void *none) {
  helpers++;
  return none;
}

void *malloc(size_t size) {
  if (atomic_exchange(&state, 1) == 0) {
    cpus_at_start = sysconf(_SC_NPROCESSORS_ONLN);
    page_at_start = sysconf(_SC_PAGESIZE);
  }
  if (!inside && ++calls % 1000 == 0) {
    pthread_t thread;
    inside = 1;
    if (pthread_create(&thread, NULL, help, NULL) == 0) pthread_join(thread, NULL);
    inside = 0;
  }
  size_t start = atomic_fetch_add(&used, (size + 31) & ~(size_t)15);
  if (start + size + 16 > sizeof room) _exit(99);
  *(size_t *)(room + start) = size;
  return room + start + 16;
}
void free(void *at) { (void)at; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *at, size_t size) {
  void *next = malloc(size);
  size_t old = at ? *(size_t *)((char *)at - 16) : 0;
  if (at) memcpy(next, at, old < size ? old : size);
  return next;
}
