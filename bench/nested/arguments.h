/*
 * The command line that the nested programs share:
 *
 *     PROGRAM [--json] [--help] [--OPTION VALUE]... [YxZ]
 *
 * where YxZ is the shape: Y outer threads, each of which opens a team of Z.
 */
#ifndef BENCH_NESTED_ARGUMENTS_H
#define BENCH_NESTED_ARGUMENTS_H

#include "common/arguments.h"
#include "nested/teams.h"

#include <stdbool.h>
#include <stddef.h>

/* An option with a value: a number within bounds, or one of a few words. */
struct nested_option {
    const char *name;         /* as typed: "--elements" */
    const char *help;         /* one line for --help */
    const char *const *words; /* up to a NULL; NULL for a number */
    long long least;          /* of a number */
    long long most;
    long long *value; /* holds the default; a word is given by its index */
};

struct nested_arguments {
    struct team_shape shape; /* 1x1 unless given */
    bool json;
};

/* First writer of an array, which decides on which NUMA node the array lies. */
enum first_touch { TOUCHED_BY_TEAM, TOUCHED_BY_MASTER };

/* The words for the first writer, and the option that takes them. */
extern const char *const first_touch_words[];
struct nested_option first_touch_option(long long *value);

/*
 * Reads the command line.  Like parse_arguments it ends the program for --help,
 * and for an invalid command line.
 */
struct nested_arguments parse_nested_arguments(const struct bench_program *program,
                                               const struct nested_option *options, size_t count,
                                               int argc, char **argv);

#endif
