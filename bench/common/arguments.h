/*
 * The command line that all class-sized kernels share:
 *
 *     KERNEL [--json] [--help] [CLASS]
 */
#ifndef BENCH_COMMON_ARGUMENTS_H
#define BENCH_COMMON_ARGUMENTS_H

#include "common/problem_class.h"

#include <stdbool.h>

/* Name and summary of a program. */
struct bench_program {
    const char *name;    /* as typed: "cg" */
    const char *summary; /* one line for --help */
};

struct bench_options {
    enum problem_class problem_class; /* S unless given */
    bool json;                        /* report as JSON instead of words */
};

/*
 * Reads the command line.  For --help prints the help and ends the program with
 * status 0; for an invalid command line prints one line to stderr and ends the
 * program with status BENCH_EXIT_BAD_USAGE.
 */
struct bench_options parse_arguments(const struct bench_program *program, int argc, char **argv);

#endif
