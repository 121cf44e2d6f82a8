/* MPI programs over teams: collectives of communicators whose ranks are all on this machine are carried out by a team (trimtab/team.h), and
 * everything else by the MPI underneath. The library is preloaded into the ranks of a program as it is; docs/teams-mpi.md.
 *
 *     communicators.c    which communicators have teams
 *     types.c            types that lie plainly in memory, and types and operators that a team combines
 *     data.c             calls that move data, and calls that combine it
 *     calls.c            MPI's functions, each by a line of collectives.h
 *     fortran.c          the same functions for Fortran
 *     start.c            the begin and the end of the program
 *
 * It is compiled with the mpicc of the MPI that the program uses, since handles are pointers in one MPI and integers in another.
 *
 * Which of the two carries out a call must be the same at all ranks, although a rank knows only its own arguments. MPI demands that types match
 * in their signature only: one rank may name four integers and another one a derived type of four. So calls that move data are decided by the
 * communicator alone: the team moves bytes, and derived types are packed. Calls that combine are decided by type and operator, which MPI
 * demands to be the same at all ranks. A call with an invalid argument goes to MPI, which reports it.
 *
 * Threads: MPI forbids two collectives at a time in one communicator, so whatever belongs to a communicator is used by one thread at a time.
 * What belongs to the process is behind a lock, or each thread has its own. */
#ifndef TRIMTAB_MPI_H
#define TRIMTAB_MPI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trimtab/team.h>

#define EXPORT __attribute__((visibility("default")))
#define UNLIKELY(is) __builtin_expect(!!(is), 0)

/* ---- Communicators */

/* What carries a communicator's collectives out. */
enum by { BY_UNDECIDED, BY_TEAM, BY_MPI };

/* What this library knows of a communicator: its attribute. */
struct part {
    MPI_Comm comm;
    enum by by;
    int rank, size;
    unsigned calls;                /* collectives until it is decided, the same at all ranks */
    uint64_t ns;                   /* time of MPI in these, at this rank */
    trimtab_rank team;             /* if by == BY_TEAM */
    const char *call;              /* the function that was called last, for messages */
    unsigned long by_team, by_mpi; /* collectives that either carried out */
    struct part *next;             /* of all parts of this process */
};

/* Whether this process's collectives may be carried out by teams: agreed by all ranks of MPI_COMM_WORLD. */
extern int teams_on;
/* How many communicators were freed: what a thread remembers from before may be of another communicator. */
extern atomic_ulong communicators_freed;

/* The communicators of a thread's last calls: a look there is quicker than MPI's attributes. */
enum { NEAR = 8 };
struct near_parts {
    unsigned long freed;
    struct {
        MPI_Comm comm;
        struct part *part;
    } at[NEAR];
};
/* The library is loaded when the program starts, so its variables of threads are at a fixed place. */
extern __thread struct near_parts near_parts __attribute__((tls_model("initial-exec")));

static inline size_t near_place(MPI_Comm comm) {
    uintptr_t word = (uintptr_t)comm;
    return (size_t)((word ^ word >> 4 ^ word >> 9) % NEAR);
}

struct part *part_slow(MPI_Comm comm);

/* The collective of an undecided communicator that MPI carries out now in this thread, and when it began. */
struct timed {
    struct part *part; /* NULL if there is none */
    uint64_t from;     /* ns */
};
extern __thread struct timed timed __attribute__((tls_model("initial-exec")));
/* Adds the time of the collective `timed`. */
void part_returned(void);

/* Called after MPI has carried out a collective. Returns its result. */
static inline int returned(int error) {
    if (UNLIKELY(timed.part)) part_returned();
    return error;
}

/* The part of a communicator whose collectives a team carries out, or NULL. Every collective of MPI that is taken over begins with it. */
static inline struct part *part_of(MPI_Comm comm) {
    if (!teams_on) return NULL;
    if (near_parts.freed == atomic_load_explicit(&communicators_freed, memory_order_acquire)) {
        size_t at = near_place(comm);
        struct part *part = near_parts.at[at].part;
        if (part && near_parts.at[at].comm == comm && part->by == BY_TEAM) return part;
    }
    return part_slow(comm);
}

static inline int no_rank(const struct part *part, int root) { return root < 0 || root >= part->size; }

/* MPI has begun. */
void begin(void);
/* Leaves all teams, and counts the collectives that teams and MPI carried out. */
void leave_all(unsigned long *by_team, unsigned long *by_mpi);

/* ---- Types */

/* How a team combines: an operator of its own, or one of this library's. */
struct combined {
    int type;  /* enum trimtab_type */
    int times; /* elements of the team's in one of MPI's: 2 for complex numbers */
    uint32_t operation;
    trimtab_own_operator own;
};

/* Returns 0 if a team cannot combine elements of this type by this operator. */
int combined_of(MPI_Datatype type, MPI_Op op, struct combined *to);
/* Bytes of an element of a type whose elements lie one behind the other in memory in the order of MPI; 0 for others, which are packed. */
size_t plain(MPI_Datatype type);

/* ---- Calls */

/* A buffer as the program names it: blocks of `count` elements one behind the other, or blocks with numbers and places of their own. */
struct buffer {
    void *at;
    MPI_Count count;
    MPI_Datatype type;
    const MPI_Datatype *types; /* of each block, with places in bytes; NULL if all have `type` */
    const void *counts, *places;
    int varied; /* whether the call has such arrays, also where this rank's are not significant */
    int wide;   /* counts are MPI_Count and places MPI_Aint instead of int */
};

static inline struct buffer blocks_of(const void *at, MPI_Count count, MPI_Datatype type) {
    struct buffer of = {(char *)(uintptr_t)at, count, type, NULL, NULL, NULL, 0, 0};
    return of;
}

static inline struct buffer varied_of(const void *at, const void *counts, const void *places, int wide, MPI_Datatype type,
                                      const MPI_Datatype *types) {
    struct buffer of = {(char *)(uintptr_t)at, 0, type, types, counts, places, 1, wide};
    return of;
}

/* What these functions return if MPI carries out the call. Otherwise they return MPI_SUCCESS or an error of MPI. */
#define LEFT_TO_MPI INT_MIN

int wait_for_all(struct part *part);
int broadcast(struct part *part, struct buffer buffer, int root);
/* A call that moves blocks, of a kind of trimtab_varied. */
int move(struct part *part, uint32_t kind, struct buffer from, struct buffer to, int root);
int combine(struct part *part, uint32_t kind, const void *from, void *to, MPI_Count count, MPI_Datatype type, MPI_Op op, int root);
/* The count of all blocks if they are alike, or a negative number. */
MPI_Count alike(const struct part *part, const void *counts, int wide);

/* MPI is about to end. */
void end(void);

#endif
