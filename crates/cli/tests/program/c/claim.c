/* claim FOLDER MILLISECONDS: makes a file for each CPU it may use, keeps them for a while, removes them. Prints a
   message and ends with 9 if a file exists already: then another process uses that CPU. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char path[4096];
    cpu_set_t set;
    int wrong = 0;
    if (argc < 3 || sched_getaffinity(0, sizeof set, &set)) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) continue;
        snprintf(path, sizeof path, "%s/cpu%d", argv[1], cpu);
        int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0666);
        if (file < 0) {
            printf("%s: %s\n", path, strerror(errno));
            CPU_CLR(cpu, &set);
            wrong = 9;
        }
        close(file);
    }
    usleep(1000 * atoi(argv[2]));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) continue;
        snprintf(path, sizeof path, "%s/cpu%d", argv[1], cpu);
        unlink(path);
    }
    return wrong;
}
