/*
 * The command line of the balance programs.  See options.h.
 */
#include "balance/options.h"

#include "common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"", " N", " NUMBER", " WORD", " N", " N,N..."};

static _Noreturn void print_help(const struct balance_program *program,
                                 const struct balance_option *options, size_t count)
{
    printf("%s: %s\n\nusage: %s [--help] [--OPTION [VALUE]]...\n\n", program->name,
           program->summary, program->name);
    for (size_t i = 0; i < count; i++) {
        printf("  %s%s  %s", options[i].name, kinds[options[i].kind], options[i].help);
        for (int word = 0; options[i].kind == OPTION_WORD && options[i].words[word]; word++)
            printf("%s%s", word == 0 ? ": " : ", ", options[i].words[word]);
        printf("\n");
    }
    printf("\nExit status: %d verified, %d wrong result, %d bad usage, %d could not run.\n",
           BENCH_EXIT_VERIFIED, BENCH_EXIT_WRONG_RESULT, BENCH_EXIT_BAD_USAGE,
           BENCH_EXIT_CANNOT_RUN);
    exit(EXIT_SUCCESS);
}

static _Noreturn void reject(const struct balance_program *program, const char *problem,
                             const char *argument)
{
    fprintf(stderr, "%s: %s '%s' (%s --help lists the options)\n", program->name, problem,
            argument, program->name);
    exit(BENCH_EXIT_BAD_USAGE);
}

void give_up(const struct balance_program *program, const char *why)
{
    fprintf(stderr, "%s: %s\n", program->name, why);
    exit(BENCH_EXIT_CANNOT_RUN);
}

/* Digits, and for a number also a point; strtod alone would take "inf", spaces and hexadecimals. */
static bool read_number(const struct balance_option *option, const char *text, double *number)
{
    const char *allowed = option->kind == OPTION_NUMBER ? "0123456789." : "0123456789";
    if (*text == '\0' || strspn(text, allowed) != strlen(text) || strlen(text) > 18)
        return false;
    char *end = NULL;
    *number = strtod(text, &end);
    return *end == '\0' && *number >= option->least && *number <= option->most;
}

/* Counts with commas between them. */
static bool read_list(const struct balance_option *option, const char *text)
{
    struct counts *counts = option->value;
    for (counts->length = 0; counts->length < COUNTS_MAX;) {
        char item[20];
        const size_t length = strcspn(text, ",");
        double number = 0.0;
        if (length >= sizeof item)
            return false;
        memcpy(item, text, length);
        item[length] = '\0';
        if (!read_number(option, item, &number))
            return false;
        counts->values[counts->length++] = (long long)number;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
    return false;
}

static bool read_value(const struct balance_option *option, const char *text)
{
    if (option->kind == OPTION_LIST)
        return read_list(option, text);
    if (option->kind == OPTION_WORD) {
        for (int word = 0; option->words[word] != NULL; word++)
            if (strcmp(text, option->words[word]) == 0) {
                *(int *)option->value = word;
                return true;
            }
        return false;
    }
    double number = 0.0;
    if (!read_number(option, text, &number))
        return false;
    if (option->kind == OPTION_NUMBER) {
        *(double *)option->value = number;
    } else if (option->kind == OPTION_COUNT) {
        *(long long *)option->value = (long long)number;
    } else {
        struct counts *counts = option->value;
        if (counts->length == COUNTS_MAX)
            return false;
        counts->values[counts->length++] = (long long)number;
    }
    return true;
}

void parse_options(const struct balance_program *program, const struct balance_option *options,
                   size_t count, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct balance_option *option = NULL;
        for (size_t at = 0; at < count; at++)
            if (strcmp(options[at].name, argv[i]) == 0)
                option = &options[at];
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            print_help(program, options, count);
        if (option == NULL)
            reject(program, argv[i][0] == '-' ? "unknown option" : "unexpected argument", argv[i]);
        if (option->kind == OPTION_FLAG) {
            *(bool *)option->value = true;
            continue;
        }
        if (i + 1 == argc)
            reject(program, "no value for", argv[i]);
        i++;
        if (!read_value(option, argv[i])) {
            char problem[64];
            snprintf(problem, sizeof problem, "not a value for %s:", option->name);
            reject(program, problem, argv[i]);
        }
    }
}
