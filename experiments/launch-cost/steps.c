/*
 * Counts the instructions a program executes in user mode, over all its execs, by stepping through it:
 *
 *     steps LIMIT PROGRAM [ARGUMENT...]      prints the count, or ">LIMIT" if it exceeds the limit
 *
 * For machines without hardware counters, such as many virtual ones. A count is exact except for string instructions,
 * of which every repetition counts. Children that the program starts are not counted: a launcher that execs has none.
 * Slow: about a microsecond or two per step.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(125);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: steps LIMIT PROGRAM [ARGUMENT...]\n", stderr);
        return 2;
    }
    const unsigned long long limit = strtoull(argv[1], NULL, 10);
    const pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            fail("ptrace");
        execvp(argv[2], argv + 2);
        fail(argv[2]);
    }

    unsigned long long steps = 0;
    for (;;) {
        int status;
        if (waitpid(child, &status, 0) != child)
            fail("waitpid");
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "%s did not end well\n", argv[2]);
                return 1;
            }
            printf("%llu\n", steps);
            return 0;
        }
        /* An exec and a finished step both stop with SIGTRAP; every other signal is for the program. */
        const int signal_number = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (++steps > limit) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            printf(">%llu\n", limit);
            return 0;
        }
        if (ptrace(PTRACE_SINGLESTEP, child, 0, signal_number) != 0 && errno != ESRCH)
            fail("ptrace");
    }
}
