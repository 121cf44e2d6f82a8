/*
 * NAS kernels FT, IS, EP, CG and MG by ranks that exchange data: programs in which ranks compute between their
 * meetings, to complement the single operations of team/measure.h.
 *
 *     kernels_LIBRARY -K ft|is|ep|cg|mg -c CLASS -n RANKS -m stream|resident -B REPEATS [-T MS] [-d KEYS] [-p]
 *
 * Problem, random numbers, operation count and expected results are those of nas/ (ft_problem,
 * ft_reference, ft_transform, is_problem, ep_problem, cg_problem, cg_matrix,
 * mg_problem, mg_grid, mg_charges).  `struct ways` is the interface of a library:
 * barrier, sum, all-to-all of short blocks, and the exchange of parcels of different sizes.
 *
 * Parcels.  A rank writes all data for other ranks into one place, its outgoing memory, and learns where
 * the data for it have arrived.  Libraries that send copy from there into the receiver's memory.  If ranks
 * see each other's outgoing memory, nothing is copied: data that arrived are where their sender wrote
 * them, and `over` signals that they are not read any more.  The kernels pack and unpack as part of their
 * arithmetic in both cases.
 *
 * A repetition is timed by the slowest rank, from a common start; with it the report has the CPU time of
 * all ranks, the time in calls of the library, and the share of the machine that other processes used.
 * The operating system measures that share over a tenth of a second or more: -T repeats short kernels for
 * that long.  Every repetition is verified, by its last run.
 */
#ifndef BENCH_TEAM_KERNELS_KERNEL_H
#define BENCH_TEAM_KERNELS_KERNEL_H

#include "common/problem_class.h"
#include "team/machine.h"

#include <stdbool.h>
#include <stddef.h>

enum kernel { KERNEL_FT, KERNEL_IS, KERNEL_EP, KERNEL_CG, KERNEL_MG, KERNEL_COUNT };

/* Distribution of the keys of IS: as published, most of them small, or all but a few the same. */
enum keys { KEYS_BELL, KEYS_LOW, KEYS_ONE, KEYS_COUNT };

struct job {
    enum kernel kernel;
    enum problem_class problem_class;
    enum keys keys;
    int ranks;
    int processes; /* of a library that can have both; else what it has */
    bool resident; /* outgoing memory is where all ranks see it */
    bool pinned;   /* rank i on the CPU i modulo their number, of those allowed at the start */
    int repeats;
    double least_seconds; /* a repetition is the kernel as many times over as that takes */
};

/* Parcels from each rank to each rank in one exchange; sizes and positions in
 * bytes. */
struct parcels {
    bool even;        /* all parcels of all ranks are as long, and in the order of ranks */
    bool same;        /* each rank sends the same to all, from the beginning of its outgoing memory */
    size_t *send_at;  /* of each rank: where in this rank's outgoing memory its parcel is, */
    size_t *send;     /* and how long */
    size_t *take_at;  /* where in that rank's outgoing memory this rank's parcel is, */
    size_t *take;     /* and how long */
    unsigned char **arrived; /* where it is to be read */
};

/* A rank, in its own thread or process. */
struct rank {
    const struct job *job;
    const struct ways *ways;
    int me;
    void *team; /* the library's own */
    double waited; /* seconds in the library so far */
};

enum number { NUMBER_I32, NUMBER_F64 };

/* Interface of a library, called by all ranks in the same order. */
struct ways {
    const char *name; /* in the report: "openmpi" */
    const char *kind; /* "process", "thread" or such as "2x2" */
    bool processes;   /* each rank has a process of its own */
    void (*barrier)(struct rank *rank);
    /* The sums of all ranks' numbers, to all. */
    void (*sum)(struct rank *rank, const void *in, void *out, size_t count, enum number type);
    /* A block of this number of bytes from each rank to each rank. */
    void (*alltoall)(struct rank *rank, const void *in, void *out, size_t bytes);
    /* Gives every rank `count` numbers of every rank, at all[rank * count]. */
    void (*gather)(struct rank *rank, const double *mine, int count, double *all);
    /* The outgoing memory; asked for once. */
    unsigned char *(*outgoing)(struct rank *rank, size_t bytes);
    /* Sends the outgoing memory to the other ranks, which find it at `arrived`. */
    void (*exchange)(struct rank *rank, struct parcels *parcels);
    /* This rank has read all its data; returns when its outgoing memory may be written
     * again. */
    void (*over)(struct rank *rank);
};

/* The timed operations that kernels call. */
void all_wait(struct rank *rank);
void all_sum(struct rank *rank, const void *in, void *out, size_t count, enum number type);
void all_to_all(struct rank *rank, const void *in, void *out, size_t bytes);
void exchange(struct rank *rank, struct parcels *parcels);
void exchange_is_over(struct rank *rank);

/* Memory from fresh pages, filled with zeros; ends the program if there is none. */
void *fresh(size_t count, size_t size);
void give_back(void *memory, size_t count, size_t size);
struct parcels make_parcels(int ranks);

/* The first of n items of rank r, of `ranks` ranks; rank `ranks` begins at n. */
int first_of(int n, int r, int ranks);

/* A kernel. */
struct kernel_program {
    const char *word;
    size_t (*outgoing_bytes)(const struct job *job); /* the most that any rank needs */
    int (*ranks_max)(enum problem_class problem_class);
    double (*operations)(enum problem_class problem_class);
    /* Sets up, and warms caches and page tables by an iteration. */
    void *(*prepare)(struct rank *rank);
    /* The timed part: all from the beginning, also if called again. */
    void (*repeat)(struct rank *rank, void *state);
    /* Whether the result is right, as far as this rank knows. */
    bool (*is_right)(struct rank *rank, void *state);
};

extern const struct kernel_program kernel_ft;
extern const struct kernel_program kernel_is;
extern const struct kernel_program kernel_ep;
extern const struct kernel_program kernel_cg;
extern const struct kernel_program kernel_mg;

/* The program of job->kernel. */
const struct kernel_program *kernel_of(const struct job *job);

/*
 * Reads the command line.  Ends the program for -h, and with TEAM_EXIT_BAD_USAGE
 * for an invalid command line; prints a message only if `loud`.  With `may_choose`
 * the program has -k thread, process or PxT, and -m resident.
 */
struct job read_job(const char *program, bool may_choose, bool loud, int argc, char **argv);

/* Runs the job; called by all ranks.  Rank 0 prints.  Returns the exit status, the same in every rank. */
int run_kernel(struct rank *rank);

#endif
