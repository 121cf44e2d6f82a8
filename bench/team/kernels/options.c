/*
 * The command line of the kernels.  See kernel.h.
 */
#define _GNU_SOURCE

#include "team/kernels/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kernels[KERNEL_COUNT] = {"ft", "is", "ep", "cg", "mg"};
static const char *const spreads[KEYS_COUNT] = {"bell", "low", "one"};
static const char *const modes[] = {"stream", "resident"};

static _Noreturn void reject(const char *program, bool loud, const char *problem, const char *value)
{
    if (loud)
        fprintf(stderr, "%s: %s '%s' (%s -h lists the options)\n", program, problem, value, program);
    exit(TEAM_EXIT_BAD_USAGE);
}

static _Noreturn void print_help(const char *program, bool may_choose, bool loud)
{
    if (loud)
        printf("usage: %s [-K ft|is|ep|cg|mg] [-c CLASS] [-n RANKS] [-d bell|low|one] [-B REPEATS] [-T MS] [-p]%s\n\n"
               "  -K  NAS kernel: ft, a diffusion equation by 3-D Fourier transforms, is, ranks of integer keys, ep, sums of\n"
               "      Gaussian pairs, cg, an eigenvalue of a sparse matrix by conjugate gradients, or mg, a Poisson\n"
               "      problem by multigrid\n"
               "  -c  class, one of %s (default S)\n"
               "  -d  keys of is: bell, as published; low, most of them small; one, all but a few the same\n"
               "  -T  milliseconds that a repetition lasts, at least: the kernel is gone through as often as that takes\n"
               "  -p  bind rank i to the CPU i modulo their number, of those allowed\n%s\n"
               "Exit status: %d done, %d could not run, %d bad usage, %d wrong result.\n",
               program, may_choose ? " [-k thread|process|PxT] [-m stream|resident]" : "", problem_class_list(),
               may_choose ? "  -k  threads, processes, or P processes of T threads each\n"
                            "  -m  stream: what is exchanged is copied; resident: it is read where its sender wrote it\n"
                          : "",
               TEAM_EXIT_DONE, TEAM_EXIT_CANNOT_RUN, TEAM_EXIT_BAD_USAGE, TEAM_EXIT_WRONG_RESULT);
    exit(TEAM_EXIT_DONE);
}

/* Digits only: strtol alone would take spaces and signs. */
static bool read_count(const char *text, long most, int *count)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 9)
        return false;
    const long value = strtol(text, NULL, 10);
    *count = (int)value;
    return value >= 1 && value <= most;
}

static bool read_word(const char *text, const char *const *words, int count, int *word)
{
    for (*word = 0; *word < count; ++*word)
        if (strcmp(text, words[*word]) == 0)
            return true;
    return false;
}

/* Number of processes for a kind and a number of ranks; 0 if they do not fit. */
static int processes_of(const char *kind, int ranks)
{
    char processes[8];
    int outer = 0;
    int inner = 0;
    if (strcmp(kind, "thread") == 0)
        return 1;
    if (strcmp(kind, "process") == 0)
        return ranks;
    const size_t length = strcspn(kind, "x");
    if (kind[length] != 'x' || length >= sizeof processes)
        return 0;
    memcpy(processes, kind, length);
    processes[length] = '\0';
    if (!read_count(processes, RANKS_MAX, &outer) || !read_count(kind + length + 1, RANKS_MAX, &inner))
        return 0;
    return outer * inner == ranks ? outer : 0;
}

struct job read_job(const char *program, bool may_choose, bool loud, int argc, char **argv)
{
    struct job job = {.ranks = 2, .repeats = 1, .problem_class = CLASS_S};
    int kernel = KERNEL_FT;
    int keys = KEYS_BELL;
    int resident = 0;
    int milliseconds = 0;
    const char *kind = "thread";
    const char *const known = may_choose ? ":K:c:n:d:B:T:k:m:ph" : ":K:c:n:d:B:T:m:ph";
    for (int option; (option = getopt(argc, argv, known)) != -1;) {
        bool understood = true;
        switch (option) {
        case 'K': understood = read_word(optarg, kernels, KERNEL_COUNT, &kernel); break;
        case 'c': understood = problem_class_parse(optarg, &job.problem_class); break;
        case 'n': understood = read_count(optarg, RANKS_MAX, &job.ranks); break;
        case 'd': understood = read_word(optarg, spreads, KEYS_COUNT, &keys); break;
        case 'B': understood = read_count(optarg, 1000000, &job.repeats); break;
        case 'T': understood = read_count(optarg, 3600000, &milliseconds); break;
        case 'm': understood = read_word(optarg, modes, may_choose ? 2 : 1, &resident); break;
        case 'k': kind = optarg; break;
        case 'p': job.pinned = true; break;
        case 'h': print_help(program, may_choose, loud);
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
    job.processes = processes_of(kind, job.ranks);
    if (job.processes == 0)
        reject(program, loud, "does not make that many ranks:", kind);
    job.kernel = (enum kernel)kernel;
    job.keys = (enum keys)keys;
    job.resident = resident != 0;
    job.least_seconds = milliseconds / 1e3;
    if (job.ranks > kernel_of(&job)->ranks_max(job.problem_class))
        reject(program, loud, "more ranks than can share the work of", kernels[kernel]);
    return job;
}
