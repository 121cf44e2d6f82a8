/* Teams: threads or processes of one machine that work together through shared memory. Link with -ltrimtab_team.
 *
 *     trimtab_team team;
 *     struct trimtab_team_options options;
 *     trimtab_team_options_init(&options, 4);            // four ranks
 *     trimtab_team_new(&options, &team);                 // all memory is allocated now
 *
 *     trimtab_rank rank;                                 // in each of four threads or forked processes
 *     trimtab_team_join(team, -1, &rank);                // returns when all four have joined
 *     trimtab_allreduce(rank, in, out, count, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE);
 *     trimtab_rank_leave(rank);
 *
 * Every function returns TRIMTAB_OK or another code; trimtab_last_error() has the text. Handles are numbers. Any thread may use a team's
 * handle; only the thread that joined may use a rank's, and the handles of its requests and blocks (but see trimtab_team_join_process). A
 * handle that was freed gives an error. A thread that ends leaves its teams. Nothing here starts threads or ends the process, or prints unless TRIMTAB_TEAM_CHECK=on asks
 * for checked calls (docs/teams.md).
 *
 * All ranks of a team make the same calls in the same order. Buffers need no alignment. Input and output do not overlap, or the call is in
 * place: they are the same, and for gather and allgather the input is this rank's own block of the output, for scatter the output that of
 * the input. Ranks may choose this each for itself. Counts are elements of a block. */
#ifndef TRIMTAB_TEAM_H
#define TRIMTAB_TEAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t trimtab_team;    /* of the process */
typedef uint64_t trimtab_rank;    /* of the thread that joined */
typedef uint64_t trimtab_request; /* a started call */
typedef uint64_t trimtab_block;   /* memory in the segment */
typedef uint64_t trimtab_view;    /* memory that a rank published; of the process */

enum trimtab_code {
    TRIMTAB_OK,
    TRIMTAB_PEER_DIED,   /* a rank's process ended; shrink goes on without it */
    TRIMTAB_PEER_LEFT,   /* a rank left while others wait for it */
    TRIMTAB_TIMEOUT,     /* a call waited longer than the deadline */
    TRIMTAB_MISMATCH,    /* ranks made different calls */
    TRIMTAB_REVOKED,     /* another rank gave the team up */
    TRIMTAB_FORKED,      /* the handle is the parent's */
    TRIMTAB_ARGUMENT,    /* an invalid argument */
    TRIMTAB_NO_MEMORY,   /* reported when a team is made, and never later */
    TRIMTAB_NOT_A_TEAM,  /* the passed descriptor is not a team's segment */
    TRIMTAB_REFUSED,     /* a seat is taken, a team has begun, a rank does not come */
    TRIMTAB_SYSTEM,      /* a system call failed */
    TRIMTAB_INTERRUPTED, /* a wait was interrupted */
    TRIMTAB_PANIC,       /* a fault inside the library, which was contained; the team is given up */
    TRIMTAB_POISONED     /* the rank met such a fault before: it can only leave */
};

/* The text of a code, and the text of this thread's last error, which is valid until its next call. */
const char *trimtab_error_text(int code);
const char *trimtab_last_error(void);

/* ---- Teams */

enum trimtab_waiting { TRIMTAB_WAIT_AUTO, TRIMTAB_WAIT_SPIN, TRIMTAB_WAIT_YIELD, TRIMTAB_WAIT_PARK };

struct trimtab_team_options {
    size_t size;          /* of this, set by trimtab_team_options_init */
    uint32_t ranks;
    uint32_t wait;        /* enum trimtab_waiting */
    size_t heap;          /* bytes for trimtab_alloc and trimtab_split */
    size_t cell;          /* bytes under way in one round, a power of two */
    uint64_t deadline_ns; /* longest wait of a call before it is given up; 0: no limit */
    uint64_t gather_ns;   /* how long ranks wait for each other to join */
    uint32_t tables;      /* 0: algorithms as tuned on this machine; 1: the usual algorithms */
};

/* Fills in the defaults, for `ranks` ranks. `size` is the size in the caller's header, so a later library writes no more than that. */
int trimtab_team_options_fill(struct trimtab_team_options *options, size_t size, uint32_t ranks);
static inline int trimtab_team_options_init(struct trimtab_team_options *options, uint32_t ranks) {
    return trimtab_team_options_fill(options, sizeof *options, ranks);
}
int trimtab_team_new(const struct trimtab_team_options *options, trimtab_team *team);
/* The team that this process was started into (TRIMTAB_TEAM), and its rank there. */
int trimtab_team_inherited(trimtab_team *team, uint32_t *rank);
/* "TRIMTAB_TEAM=...", for the environment of a child that is to be this rank; the descriptor stays open over exec from now on. */
int trimtab_team_invitation(trimtab_team team, uint32_t rank, char *text, size_t length);
/* Passes the team to ranks 1 and above at a path in a folder that only this user can enter; returns when all have it. */
int trimtab_team_host(trimtab_team team, const char *path);
int trimtab_team_meet(const char *path, int64_t wanted, const struct trimtab_team_options *options, trimtab_team *team,
                      uint32_t *rank);
/* The team of a job that another launcher started: its rank 0 hosts it, the others meet it, under a name that is unique to this job and
 * the same at all ranks; returns when all have it. For the ranks of an MPI communicator see team_mpi.h. */
int trimtab_team_of_job(uint32_t rank, const char *key, const struct trimtab_team_options *options, trimtab_team *team);
/* Makes this thread the rank of this number, or any rank (-1); returns when all have joined. */
int trimtab_team_join(trimtab_team team, int64_t number, trimtab_rank *rank);
/* The same for this process: any of its threads may use the rank, one at a time (REFUSED for another one meanwhile). The rank stays when the
 * thread that called this ends, until the process or its first thread ends. It has no parts, and does not shrink or recover. */
int trimtab_team_join_process(trimtab_team team, int64_t number, trimtab_rank *rank);
/* Frees a team's handle; ranks that have joined stay. */
int trimtab_team_free(trimtab_team team);

/* ---- Ranks */

int trimtab_rank_number(trimtab_rank rank, uint32_t *number);
int trimtab_rank_size(trimtab_rank rank, uint32_t *ranks);
/* Whether there are more ranks than CPUs for them. */
int trimtab_rank_crowded(trimtab_rank rank, int *crowded);
int trimtab_rank_deadline(trimtab_rank rank, uint64_t deadline_ns);
/* Sets a function that this rank calls while it waits for other ranks, so that another library of the process (MPI, UCX) makes progress; NULL
 * for none. A wait calls it after 20 to 30 us, then in growing intervals of up to 100 us, and at least every 200 us while the rank would sleep;
 * shorter waits never call it. It returns 1 if it has work under way (the rank then yields and calls it again instead of sleeping), else 0. It must not wait
 * for other ranks of the team; its calls of the team are refused. Parts and remainders made later inherit it. */
typedef int (*trimtab_progress_hook)(void *context);
int trimtab_rank_progress(trimtab_rank rank, trimtab_progress_hook hook, void *context);
int trimtab_rank_leave(trimtab_rank rank);
/* Ranks of one colour become a team, in the order of keys; 0 for those with colour -1. */
int trimtab_split(trimtab_rank rank, int64_t colour, int32_t key, size_t heap, trimtab_rank *part);
/* The remainder of a team that lost ranks. The old handle is freed, also if this fails. */
int trimtab_shrink(trimtab_rank rank, uint64_t deadline_ns, trimtab_rank *left);
/* The same ranks as a team that is usable again after a call failed without a loss (MISMATCH, TIMEOUT, INTERRUPTED, REVOKED). All live ranks
 * call it. Blocks of the old team become invalid. The old handle is freed, also if this fails. */
int trimtab_recover(trimtab_rank rank, uint64_t deadline_ns, trimtab_rank *usable);

/* The last calls of all ranks, and for which rank each waits, as text: waits for no rank, and works after an error. If calls are checked
 * (TRIMTAB_TEAM_CHECK=on), trimtab_last_error() includes it when a call fails. */
int trimtab_report(trimtab_rank rank, char *text, size_t length);

/* Memory in the segment, a block for each rank; all ranks call it with the same arguments. Large broadcasts and allreduces whose buffers
 * lie there make no intermediate copies. */
int trimtab_alloc(trimtab_rank rank, size_t bytes, trimtab_block *block, void **own);
int trimtab_block_of(trimtab_rank rank, trimtab_block block, uint32_t of, void **address);
int trimtab_block_free(trimtab_rank rank, trimtab_block block);

/* Memory that one rank writes and the others can only read: writing through `address` at another rank is SIGSEGV. All ranks call it with
 * the same arguments. The memory is zero at first; data that the publisher writes at `own` is visible to others after a barrier. `own` is
 * set to NULL at the other ranks, which may pass NULL for it. The memory stays when ranks leave, and when the publisher dies, until
 * trimtab_view_free. */
int trimtab_publish(trimtab_rank rank, uint32_t publisher, size_t bytes, trimtab_view *view, const void **address, void **own);
int trimtab_view_free(trimtab_view view);

/* ---- Collectives */

enum trimtab_kind {
    TRIMTAB_BARRIER = 1,
    TRIMTAB_BROADCAST,
    TRIMTAB_REDUCE,
    TRIMTAB_ALLREDUCE,
    TRIMTAB_REDUCE_SCATTER,
    TRIMTAB_GATHER,
    TRIMTAB_ALLGATHER,
    TRIMTAB_SCATTER,
    TRIMTAB_ALLTOALL,
    TRIMTAB_SCAN,
    TRIMTAB_EXSCAN
};

enum trimtab_type {
    TRIMTAB_I8,
    TRIMTAB_I16,
    TRIMTAB_I32,
    TRIMTAB_I64,
    TRIMTAB_U8,
    TRIMTAB_U16,
    TRIMTAB_U32,
    TRIMTAB_U64,
    TRIMTAB_F16,
    TRIMTAB_BF16,
    TRIMTAB_F32,
    TRIMTAB_F64
};

enum trimtab_operator { TRIMTAB_SUM, TRIMTAB_PROD, TRIMTAB_MIN, TRIMTAB_MAX, TRIMTAB_AND, TRIMTAB_OR, TRIMTAB_XOR };

/* When data may move, or'ed with when a call may return: as soon as any rank is there, as soon as the rank's own data permits it, or only
 * when all ranks are there or done. */
enum trimtab_sync {
    TRIMTAB_ENTER_NONE = 0,
    TRIMTAB_ENTER_MINE = 1,
    TRIMTAB_ENTER_ALL = 2,
    TRIMTAB_LEAVE_NONE = 0,
    TRIMTAB_LEAVE_MINE = 4,
    TRIMTAB_LEAVE_ALL = 8,
    TRIMTAB_LOOSE = 0,
    TRIMTAB_MINE = 5, /* as in MPI */
    TRIMTAB_STRICT = 10
};

/* An operator of your own: into[i] = operator(into[i], from[i]). It is associative, the same at all ranks, and makes no calls of a team. */
typedef void (*trimtab_own_operator)(void *into, const void *from, size_t count, void *context);

struct trimtab_collective {
    size_t size; /* of this */
    uint32_t kind, type, operation, sync;
    size_t count;
    uint32_t root;
    const void *input; /* a broadcast's buffer is its output */
    void *output;
    trimtab_own_operator own; /* instead of `operation`, or NULL */
    void *context;
};

int trimtab_barrier(trimtab_rank rank);
int trimtab_call(trimtab_rank rank, const struct trimtab_collective *call);
/* The buffers belong to the call until it is over: trimtab_test sets 1, or trimtab_wait returns. Then the request is freed. */
int trimtab_start(trimtab_rank rank, const struct trimtab_collective *call, trimtab_request *request);
int trimtab_test(trimtab_rank rank, trimtab_request request, int *done);
int trimtab_wait(trimtab_rank rank, trimtab_request request);
/* Describes the algorithm of a call of `bytes` bytes, and the reason for it. */
int trimtab_explain(trimtab_rank rank, uint32_t kind, size_t bytes, char *text, size_t length);

static inline struct trimtab_collective trimtab_collective_of(uint32_t kind, const void *input, void *output, size_t count,
                                                              uint32_t type, uint32_t operation, uint32_t root, uint32_t sync) {
    struct trimtab_collective call = {sizeof call, kind, type, operation, sync, count, root, input, output, NULL, NULL};
    return call;
}

/* Copies the root's elements to all ranks. */
static inline int trimtab_broadcast(trimtab_rank rank, void *buffer, size_t count, uint32_t type, uint32_t root, uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_BROADCAST, NULL, buffer, count, type, 0, root, sync);
    return trimtab_call(rank, &call);
}

/* Combines all ranks' elements at the root; the others' output may be NULL. */
static inline int trimtab_reduce(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type,
                                 uint32_t operation, uint32_t root, uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_REDUCE, input, output, count, type, operation, root, sync);
    return trimtab_call(rank, &call);
}

/* Combines all ranks' elements at all ranks. */
static inline int trimtab_allreduce(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type,
                                    uint32_t operation, uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_ALLREDUCE, input, output, count, type, operation, 0, sync);
    return trimtab_call(rank, &call);
}

/* Combines all ranks' blocks; each rank gets one block of `count` elements. */
static inline int trimtab_reduce_scatter(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type,
                                         uint32_t operation, uint32_t sync) {
    struct trimtab_collective call =
        trimtab_collective_of(TRIMTAB_REDUCE_SCATTER, input, output, count, type, operation, 0, sync);
    return trimtab_call(rank, &call);
}

/* Collects a block of `count` elements of each rank at the root; the others' output may be NULL. */
static inline int trimtab_gather(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type, uint32_t root,
                                 uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_GATHER, input, output, count, type, 0, root, sync);
    return trimtab_call(rank, &call);
}

/* Collects a block of each rank at all ranks. */
static inline int trimtab_allgather(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type,
                                    uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_ALLGATHER, input, output, count, type, 0, 0, sync);
    return trimtab_call(rank, &call);
}

/* Sends a block of the root's to each rank; the others' input may be NULL. */
static inline int trimtab_scatter(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type, uint32_t root,
                                  uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_SCATTER, input, output, count, type, 0, root, sync);
    return trimtab_call(rank, &call);
}

/* Sends a block of each rank to each rank. */
static inline int trimtab_alltoall(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type, uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_ALLTOALL, input, output, count, type, 0, 0, sync);
    return trimtab_call(rank, &call);
}

/* Combines the elements of ranks 0 to this one. */
static inline int trimtab_scan(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type,
                               uint32_t operation, uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_SCAN, input, output, count, type, operation, 0, sync);
    return trimtab_call(rank, &call);
}

/* Combines the elements of the ranks before this one; rank 0 keeps its output as it is. */
static inline int trimtab_exscan(trimtab_rank rank, const void *input, void *output, size_t count, uint32_t type,
                                 uint32_t operation, uint32_t sync) {
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_EXSCAN, input, output, count, type, operation, 0, sync);
    return trimtab_call(rank, &call);
}

/* ---- Blocks of different sizes and places, as in MPI's Gatherv and its siblings: kind is GATHER, ALLGATHER, SCATTER or ALLTOALL.
 *
 * Counts and places are in elements, places from the begin of the buffer; without places (NULL) blocks are one behind the other. Arrays have
 * a number for each rank, but one number for the input of GATHER and ALLGATHER and for the output of SCATTER. For GATHER only the root has an
 * output, for SCATTER only the root has an input: the others pass NULL. In place, each block that is given is the one that is got; an
 * allgather or alltoall may be in place at some ranks alone. Ranks wait for the data that they get. In ALLGATHER and ALLTOALL they wait for all
 * others, in GATHER a rank with a block of more than a cell waits for the root; with a shorter one its next call does. Giver and receiver of a
 * block know its size; if they differ, all ranks get MISMATCH: those that wait in this call, the others at the next call in which ranks wait for
 * each other, at the latest with the ninth. */

struct trimtab_varied {
    size_t size; /* of this */
    uint32_t kind, type, sync, root;
    const void *input;
    const size_t *gives, *give_places;
    void *output;
    const size_t *gets, *get_places;
};

int trimtab_call_varied(trimtab_rank rank, const struct trimtab_varied *call);

/* Collects a block of each rank at the root. */
static inline int trimtab_gatherv(trimtab_rank rank, const void *input, size_t count, void *output, const size_t *counts,
                                  const size_t *places, uint32_t type, uint32_t root, uint32_t sync) {
    struct trimtab_varied call = {sizeof call, TRIMTAB_GATHER, type, sync, root, input, &count, NULL, output, counts, places};
    return trimtab_call_varied(rank, &call);
}

/* Collects a block of each rank at all ranks. */
static inline int trimtab_allgatherv(trimtab_rank rank, const void *input, size_t count, void *output, const size_t *counts,
                                     const size_t *places, uint32_t type, uint32_t sync) {
    struct trimtab_varied call = {sizeof call, TRIMTAB_ALLGATHER, type, sync, 0, input, &count, NULL, output, counts, places};
    return trimtab_call_varied(rank, &call);
}

/* Sends a block of the root's to each rank. */
static inline int trimtab_scatterv(trimtab_rank rank, const void *input, const size_t *counts, const size_t *places, void *output,
                                   size_t count, uint32_t type, uint32_t root, uint32_t sync) {
    struct trimtab_varied call = {sizeof call, TRIMTAB_SCATTER, type, sync, root, input, counts, places, output, &count, NULL};
    return trimtab_call_varied(rank, &call);
}

/* Sends a block of each rank to each rank. */
static inline int trimtab_alltoallv(trimtab_rank rank, const void *input, const size_t *gives, const size_t *give_places,
                                    void *output, const size_t *gets, const size_t *get_places, uint32_t type, uint32_t sync) {
    struct trimtab_varied call = {sizeof call,  TRIMTAB_ALLTOALL, type,   sync, 0,         input,
                                  gives,        give_places,      output, gets, get_places};
    return trimtab_call_varied(rank, &call);
}

#ifdef __cplusplus
}
#endif
#endif
