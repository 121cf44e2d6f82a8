/* Prints the process's mask, its memory policy, and the nodes of the pages that it touches; the argument is the number
   of pages. */
#include "seen.h"
#include "pages.h"
#include <sys/syscall.h>

static const char *const names[] = {"default", "preferred", "bind", "interleave", "local", "preferred-many", "weighted"};

int main(int argc, char **argv) {
    unsigned long nodes[16] = {0};
    int mode = -1, bits = 8 * sizeof *nodes;
    char text[8192];
    printf("mask %s\n", mask(text));
    if (syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8, 0, 0)) perror("get_mempolicy");
    mode &= 0xfff; /* without its flags */
    printf("policy %s", mode >= 0 && mode < 7 ? names[mode] : "?");
    for (int node = 0; node < 16 * bits; node++)
        if (nodes[node / bits] >> node % bits & 1) printf(" %d", node);
    printf("\npages%s\n", touched(argc > 1 ? atoi(argv[1]) : 1, text));
    fflush(stdout);
    if (argc > 2) pause();
    return 0;
}
