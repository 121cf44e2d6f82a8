/*
 * The command line that the balance programs share:
 *
 *     PROGRAM [--help] [--OPTION [VALUE]]...
 *
 * Times are in seconds, as decimal fractions.
 */
#ifndef BENCH_BALANCE_OPTIONS_H
#define BENCH_BALANCE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Kind of an option's value. */
enum option_kind { OPTION_FLAG, OPTION_COUNT, OPTION_NUMBER, OPTION_WORD, OPTION_COUNTS, OPTION_LIST };

/* Counts: of an option that may be given more than once, or of one that takes a list with commas. */
#define COUNTS_MAX 64
struct counts {
    long long values[COUNTS_MAX];
    size_t length;
};

struct balance_option {
    const char *name; /* as typed: "--threads" */
    const char *help; /* one line for --help */
    enum option_kind kind;
    void *value;              /* bool, long long, double, int (index of a word) or struct counts */
    double least;             /* of a count or number */
    double most;
    const char *const *words; /* of a word, up to a NULL */
};

struct balance_program {
    const char *name;
    const char *summary;
};

/* Reads the command line; ends the program for --help, and with status 2 for an invalid command line. */
void parse_options(const struct balance_program *program, const struct balance_option *options,
                   size_t count, int argc, char **argv);

/* Prints one line on stderr and ends the program with BENCH_EXIT_CANNOT_RUN (common/report.h). */
_Noreturn void give_up(const struct balance_program *program, const char *why);

#endif
