/*
 * The command line that all class-sized kernels share:
 *
 *     KERNEL [--json] [--help] [CLASS]
 */
#ifndef BENCH_COMMON_ARGUMENTS_H
#define BENCH_COMMON_ARGUMENTS_H

#include "common/problem_class.h"

#include <stdbool.h>

/* What a program says of itself. */
struct bench_program {
    const char *name;    /* as typed: "cg" */
    const char *summary; /* one line for --help */
};

struct bench_options {
    enum problem_class problem_class; /* S unless given */
    bool json;                        /* report as JSON instead of words */
};

/*
 * Reads the command line.  For --help prints the help and ends the program
 * with status 0; for a command line it does not understand prints one line to
 * stderr and ends the program with status BENCH_EXIT_BAD_USAGE.
 */
struct bench_options parse_arguments(const struct bench_program *program, int argc, char **argv);

#endif
