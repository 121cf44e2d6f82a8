/* Prints what the process may use: its mask, the C library's answers, and its user. */
#include "seen.h"
#include <sys/sysinfo.h>
#include <unistd.h>

int main(void) {
    char text[8192];
    printf("mask %s\n", mask(text));
    printf("online %ld\nnprocs %d\n", sysconf(_SC_NPROCESSORS_ONLN), get_nprocs());
    printf("uid %d euid %d\n", getuid(), geteuid());
    return 0;
}
