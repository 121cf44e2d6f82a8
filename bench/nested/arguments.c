/*
 * The command line of the nested programs.  See arguments.h.
 */
#include "nested/arguments.h"

#include "common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More threads than any machine has cores for; a runtime may fail far earlier. */
#define MOST_THREADS 16384

const char *const first_touch_words[] = {"team", "master", NULL};

struct nested_option first_touch_option(long long *value)
{
    return (struct nested_option){
        .name = "--init",
        .help = "first writer of the data: every team, or its master alone",
        .words = first_touch_words,
        .value = value,
    };
}

static void print_values(const struct nested_option *option)
{
    if (option->words == NULL) {
        printf(" (%lld to %lld, default %lld)\n", option->least, option->most, *option->value);
        return;
    }
    printf(" (");
    for (int i = 0; option->words[i] != NULL; i++)
        printf("%s%s", i == 0 ? "" : " or ", option->words[i]);
    printf(", default %s)\n", option->words[*option->value]);
}

static _Noreturn void print_help(const struct bench_program *program,
                                 const struct nested_option *options, size_t count)
{
    printf("%s: %s\n\n", program->name, program->summary);
    printf("usage: %s [--json] [--help] [--OPTION VALUE]... [YxZ]\n\n", program->name);
    printf("  YxZ  Y outer threads, each of which opens a team of Z (default 1x1)\n");
    for (size_t i = 0; i < count; i++) {
        printf("  %s  %s", options[i].name, options[i].help);
        print_values(&options[i]);
    }
    printf("  --json  report as one JSON object instead of words\n");
    printf("  --help  print this help\n\n");
    printf("Exit status: %d verified, %d wrong result, %d bad usage, %d could not run.\n",
           BENCH_EXIT_VERIFIED, BENCH_EXIT_WRONG_RESULT, BENCH_EXIT_BAD_USAGE,
           BENCH_EXIT_CANNOT_RUN);
    exit(EXIT_SUCCESS);
}

static _Noreturn void reject(const struct bench_program *program, const char *problem,
                             const char *argument)
{
    fprintf(stderr, "%s: %s '%s' (usage: %s [--json] [--help] [--OPTION VALUE]... [YxZ])\n",
            program->name, problem, argument, program->name);
    exit(BENCH_EXIT_BAD_USAGE);
}

/*
 * Reads digits up to the first other character.  False if there are none or the
 * number is above the bound; strtoll would let signs, spaces and overflow pass.
 */
static bool read_number(const char **text, long long most, long long *number)
{
    const char *digit = *text;
    long long sum = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        if (sum > (most - (*digit - '0')) / 10)
            return false;
        sum = 10 * sum + (*digit - '0');
    }
    if (digit == *text)
        return false;
    *text = digit;
    *number = sum;
    return true;
}

static bool read_shape(const char *text, struct team_shape *shape)
{
    long long outer = 0;
    long long inner = 0;
    if (!read_number(&text, MOST_THREADS, &outer) || (*text != 'x' && *text != 'X'))
        return false;
    text++;
    if (!read_number(&text, MOST_THREADS, &inner) || *text != '\0')
        return false;
    if (outer < 1 || inner < 1 || outer * inner > MOST_THREADS)
        return false;
    *shape = (struct team_shape){(int)outer, (int)inner};
    return true;
}

static bool read_value(const struct nested_option *option, const char *text)
{
    if (option->words == NULL) {
        long long number = 0;
        if (!read_number(&text, option->most, &number) || *text != '\0' || number < option->least)
            return false;
        *option->value = number;
        return true;
    }
    for (int i = 0; option->words[i] != NULL; i++)
        if (strcmp(text, option->words[i]) == 0) {
            *option->value = i;
            return true;
        }
    return false;
}

static const struct nested_option *find_option(const struct nested_option *options, size_t count,
                                               const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

struct nested_arguments parse_nested_arguments(const struct bench_program *program,
                                               const struct nested_option *options, size_t count,
                                               int argc, char **argv)
{
    struct nested_arguments arguments = {.shape = {1, 1}, .json = false};
    bool shape_given = false;

    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        const struct nested_option *option = find_option(options, count, argument);
        if (option != NULL) {
            if (i + 1 == argc)
                reject(program, "no value for", argument);
            i++;
            if (!read_value(option, argv[i])) {
                char problem[64];
                snprintf(problem, sizeof problem, "not a value for %s:", option->name);
                reject(program, problem, argv[i]);
            }
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            print_help(program, options, count);
        } else if (strcmp(argument, "--json") == 0) {
            arguments.json = true;
        } else if (argument[0] == '-') {
            reject(program, "unknown option", argument);
        } else if (shape_given) {
            reject(program, "unexpected argument", argument);
        } else if (!read_shape(argument, &arguments.shape)) {
            reject(program, "not a shape such as 4x2, or too many threads:", argument);
        } else {
            shape_given = true;
        }
    }
    return arguments;
}
