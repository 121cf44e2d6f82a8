/*
 * The command line of the class-sized kernels.  See arguments.h.
 */
#include "common/arguments.h"

#include "common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void print_help(const struct bench_program *program)
{
    printf("%s: %s\n\n", program->name, program->summary);
    printf("usage: %s [--json] [--help] [CLASS]\n\n", program->name);
    printf("  CLASS    problem class, one of %s (default S)\n", problem_class_list());
    printf("  --json   report as one JSON object instead of words\n");
    printf("  --help   print this help\n\n");
    printf("OMP_NUM_THREADS sets the number of threads.\n");
    printf("Exit status: %d verified, %d wrong result, %d bad usage, %d could not run.\n",
           BENCH_EXIT_VERIFIED, BENCH_EXIT_WRONG_RESULT, BENCH_EXIT_BAD_USAGE,
           BENCH_EXIT_CANNOT_RUN);
    exit(EXIT_SUCCESS);
}

static _Noreturn void reject(const struct bench_program *program, const char *problem,
                             const char *argument)
{
    fprintf(stderr, "%s: %s '%s' (usage: %s [--json] [--help] [CLASS], CLASS one of %s)\n",
            program->name, problem, argument, program->name, problem_class_list());
    exit(BENCH_EXIT_BAD_USAGE);
}

struct bench_options parse_arguments(const struct bench_program *program, int argc, char **argv)
{
    struct bench_options options = {.problem_class = CLASS_S, .json = false};
    bool class_given = false;

    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)
            print_help(program);
        else if (strcmp(argument, "--json") == 0)
            options.json = true;
        else if (argument[0] == '-')
            reject(program, "unknown option", argument);
        else if (class_given)
            reject(program, "unexpected argument", argument);
        else if (!problem_class_parse(argument, &options.problem_class))
            reject(program, "unknown class", argument);
        else
            class_given = true;
    }
    return options;
}
