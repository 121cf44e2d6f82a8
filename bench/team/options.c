/*
 * The command line of the programs that the team library is compared with.
 * See measure.h.
 */
#define _GNU_SOURCE

#include "team/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Libraries count elements in an int. */
#define BYTES_MAX (1L << 30)

static const char *const ops[OP_COUNT] = {"barrier", "bcast", "allreduce", "alltoall"};
static const char *const modes[] = {"stream", "strict"};
static const char *const kinds[] = {"thread", "process"};

static _Noreturn void reject(const char *program, bool loud, const char *problem, const char *value)
{
    if (loud)
        fprintf(stderr, "%s: %s '%s' (%s -h lists the options)\n", program, problem, value, program);
    exit(TEAM_EXIT_BAD_USAGE);
}

static _Noreturn void print_help(const char *program, bool may_choose_kind, bool loud)
{
    if (loud)
        printf("usage: %s [-n RANKS] [-o barrier|bcast|allreduce|alltoall] [-z BYTES] [-m stream|strict]\n"
               "       [-B BATCHES] [-T MS_PER_BATCH] [-p]%s\n\n"
               "  -z  of the array; for alltoall of the block from each rank to each; ignored for barrier\n"
               "  -m  stream: one call after another; strict: with a barrier before and after each\n"
               "  -p  bind rank i to the CPU i modulo their number, of those allowed\n\n"
               "Exit status: %d measured, %d could not run, %d bad usage, %d wrong result.\n",
               program, may_choose_kind ? " [-k thread|process]" : "", TEAM_EXIT_DONE,
               TEAM_EXIT_CANNOT_RUN, TEAM_EXIT_BAD_USAGE, TEAM_EXIT_WRONG_RESULT);
    exit(TEAM_EXIT_DONE);
}

/* Digits only: strtol alone would take spaces and signs. */
static bool read_count(const char *text, long least, long most, long *count)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 12)
        return false;
    *count = strtol(text, NULL, 10);
    return *count >= least && *count <= most;
}

static bool read_word(const char *text, const char *const *words, int count, int *word)
{
    for (*word = 0; *word < count; ++*word)
        if (strcmp(text, words[*word]) == 0)
            return true;
    return false;
}

/* Milliseconds, also parts of one. */
static bool read_milliseconds(const char *text, double *seconds)
{
    char *end = NULL;
    if (*text == '\0' || strspn(text, "0123456789.") != strlen(text) || strlen(text) > 12)
        return false;
    *seconds = strtod(text, &end) / 1e3;
    return *end == '\0' && *seconds >= 1e-5 && *seconds <= 3600.0;
}

struct cell read_cell(const char *program, bool may_choose_kind, bool loud, int argc, char **argv)
{
    long ranks = 2;
    long bytes = 8;
    long batches = 12;
    int op = OP_BARRIER;
    int strict = 0;
    int processes = 0;
    struct cell cell = {.seconds = 2e-3};
    const char *const known = may_choose_kind ? ":n:o:z:m:B:T:k:ph" : ":n:o:z:m:B:T:ph";
    for (int option; (option = getopt(argc, argv, known)) != -1;) {
        bool understood = true;
        switch (option) {
        case 'n': understood = read_count(optarg, 1, RANKS_MAX, &ranks); break;
        case 'o': understood = read_word(optarg, ops, OP_COUNT, &op); break;
        case 'z': understood = read_count(optarg, 1, BYTES_MAX, &bytes); break;
        case 'm': understood = read_word(optarg, modes, 2, &strict); break;
        case 'B': understood = read_count(optarg, 1, 1000000, &batches); break;
        case 'T': understood = read_milliseconds(optarg, &cell.seconds); break;
        case 'k': understood = read_word(optarg, kinds, 2, &processes); break;
        case 'p': cell.pinned = true; break;
        case 'h': print_help(program, may_choose_kind, loud);
        default: {
            const char letter[] = {'-', (char)optopt, '\0'};
            reject(program, loud, option == ':' ? "no value for" : "unknown option", letter);
        }
        }
        if (!understood) {
            char problem[32];
            snprintf(problem, sizeof problem, "not a value for -%c:", option);
            reject(program, loud, problem, optarg);
        }
    }
    if (optind < argc)
        reject(program, loud, "unexpected argument", argv[optind]);
    if (op == OP_ALLREDUCE && bytes % (long)sizeof(double) != 0)
        reject(program, loud, "allreduce adds doubles of 8 bytes: not a value for -z:", "not a multiple of 8");
    cell.ranks = (int)ranks;
    cell.op = (enum op)op;
    cell.bytes = op == OP_BARRIER ? 0 : (size_t)bytes;
    cell.strict = strict != 0;
    cell.batches = (int)batches;
    cell.processes = processes != 0;
    return cell;
}
