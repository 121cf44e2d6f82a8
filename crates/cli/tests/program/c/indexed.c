/* Counts by CPU, in arrays of the length that each CPU-counting call returns. Visits every CPU that it may run on. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int main(void) {
  long lengths[] = {sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF), get_nprocs(), get_nprocs_conf()};
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return 1;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &all)) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 2;
    for (int way = 0; way < 4; way++)
      if (sched_getcpu() >= lengths[way]) printf("CPU %d, length %ld\n", sched_getcpu(), lengths[way]);
  }
  printf("%ld %ld %d %d\n", lengths[0], lengths[1], lengths[2] == lengths[0], lengths[3] == lengths[1]);
}
