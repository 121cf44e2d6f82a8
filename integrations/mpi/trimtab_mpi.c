/* MPI programs over teams: collectives of communicators whose ranks are all on this machine are carried out by a team (trimtab/team.h), and
 * everything else by the MPI underneath. The library is preloaded into the ranks of a program as it is; docs/teams-mpi.md.
 *
 * It is compiled with the mpicc of the MPI that the program uses, since handles are pointers in one MPI and integers in another.
 *
 * Which of the two carries out a call must be the same at all ranks, although a rank knows only its own arguments. MPI demands that types match
 * in their signature only: one rank may name four integers and another one a derived type of four. So calls that move data are decided by the
 * communicator alone: the team moves bytes, and derived types are packed. Calls that combine are decided by type and operator, which MPI
 * demands to be the same at all ranks. A call with an invalid argument goes to MPI, which reports it.
 *
 * A communicator gets its team at one of its first collectives (TRIMTAB_MPI_AFTER), and all ranks agree on it through MPI. A rank that waits
 * in a team calls MPI's progress, so that messages under way reach ranks that are not in the collective yet. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trimtab/team.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define UNLIKELY(is) __builtin_expect(!!(is), 0)

/* Collectives of a communicator before it gets a team, unless TRIMTAB_MPI_AFTER says another number: a team takes as long to make as a
 * thousand short calls. */
enum { AFTER_USUAL = 16 };
/* Teams of a process at a time: each has some hundred KiB for each rank. */
enum { TEAMS_MAX = 64 };
/* Bytes from which MPI broadcasts between two ranks: the receiver reads them through the kernel, which both Open MPI and MPICH do faster. */
#define PAIR_BROADCAST_MOST ((size_t)768 << 10)
/* Time for the ranks of a communicator to find each other. */
#define GATHER_NS 20000000000ull

/* ---- Communicators */

/* What carries a communicator's collectives out. */
enum by { BY_UNDECIDED, BY_TEAM, BY_MPI };

struct part {
    MPI_Comm comm;
    enum by by;
    int rank, size;
    int calls;         /* collectives so far, the same at all ranks */
    trimtab_rank team; /* if by == BY_TEAM */
    struct part *next; /* of all parts of this process */
};

/* Whether this process's collectives may be carried out by teams: agreed by all ranks of MPI_COMM_WORLD. */
static int on;
static int after = AFTER_USUAL;
static int key = MPI_KEYVAL_INVALID;
static int teams;
static struct part *parts;
/* A communicator of this rank alone, for MPI's progress. */
static MPI_Comm own = MPI_COMM_NULL;
/* Collectives that were carried out by the team, and by MPI, for TRIMTAB_MPI_REPORT. */
static unsigned long by_team, by_mpi;

/* The communicators of the last calls: a look there is quicker than MPI's attributes. */
enum { NEAR = 8 };
static struct {
    MPI_Comm comm;
    struct part *part;
} near_parts[NEAR];

static size_t near_place(MPI_Comm comm) {
    uintptr_t word = (uintptr_t)comm;
    return (size_t)((word ^ word >> 4 ^ word >> 9) % NEAR);
}

static void leave(struct part *part) {
    if (part->by != BY_TEAM) return;
    trimtab_rank_leave(part->team);
    part->by = BY_MPI;
    teams--;
}

/* A communicator is freed. */
static int forget(MPI_Comm comm, int keyval, void *value, void *extra) {
    struct part *part = value, **at = &parts;
    (void)comm, (void)keyval, (void)extra;
    for (int i = 0; i < NEAR; i++)
        if (near_parts[i].part == part) near_parts[i].part = NULL;
    while (*at && *at != part) at = &(*at)->next;
    if (*at) *at = part->next;
    leave(part);
    free(part);
    return MPI_SUCCESS;
}

/* Whether all ranks of a communicator are of this process's MPI_COMM_WORLD. If one is not, every rank sees such a one. */
static int within_world(MPI_Comm comm, int size) {
    MPI_Group world, group;
    int *theirs = malloc(sizeof(int) * 2 * (size_t)size), within = 0;
    if (!theirs) return 0;
    if (PMPI_Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
        if (PMPI_Comm_group(comm, &group) == MPI_SUCCESS) {
            for (int i = 0; i < size; i++) theirs[i] = i;
            within = PMPI_Group_translate_ranks(group, size, theirs, world, theirs + size) == MPI_SUCCESS;
            for (int i = 0; within && i < size; i++) within = theirs[size + i] != MPI_UNDEFINED;
            PMPI_Group_free(&group);
        }
        PMPI_Group_free(&world);
    }
    free(theirs);
    return within;
}

/* The part of a communicator, made if it is new; NULL if there is none: then MPI carries out its calls, at all ranks. */
static struct part *found(MPI_Comm comm) {
    struct part *part = NULL;
    size_t at = near_place(comm);
    int there = 0, inter = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_get_attr(comm, key, &part, &there) != MPI_SUCCESS) return NULL;
    if (!there) {
        part = calloc(1, sizeof *part);
        if (!part) return NULL;
        part->comm = comm;
        if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || PMPI_Comm_rank(comm, &part->rank) != MPI_SUCCESS ||
            PMPI_Comm_size(comm, &part->size) != MPI_SUCCESS || PMPI_Comm_set_attr(comm, key, part) != MPI_SUCCESS) {
            free(part);
            return NULL;
        }
        part->by = inter || part->size == 1 || !within_world(comm, part->size) ? BY_MPI : BY_UNDECIDED;
        part->next = parts;
        parts = part;
    }
    near_parts[at].comm = comm;
    near_parts[at].part = part;
    return part;
}

static int read_file(const char *path, void *bytes, size_t count) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, bytes, count);
    if (file >= 0) close(file);
    return got == (ssize_t)count;
}

static uint64_t inode(const char *path) {
    struct stat at;
    return stat(path, &at) == 0 ? (uint64_t)at.st_ino : 0;
}

/* Whether all ranks say yes. A rank that does not get the answer says no to the rest. */
static int all_agree(MPI_Comm comm, int yes) {
    int all = 0;
    return PMPI_Allreduce(&yes, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all;
}

/* Lets MPI progress while this rank waits in a team. */
static int progress(void *context) {
    int there;
    (void)context;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, own, &there, MPI_STATUS_IGNORE);
    return 0;
}

/* Makes the team of a communicator, if all its ranks are on this machine and want it. */
static void decide(struct part *part) {
    /* What all ranks of a team have in common, and random numbers that name this team. */
    struct {
        unsigned char random[16], machine[36];
        uint64_t user, processes, net;
    } first, mine;
    char name[2 * sizeof first.random + 1];
    struct trimtab_team_options options;
    trimtab_team team = 0;
    int may, code = TRIMTAB_OK;
    part->by = BY_MPI;
    memset(&mine, 0, sizeof mine);
    may = teams < TEAMS_MAX && read_file("/proc/sys/kernel/random/boot_id", mine.machine, sizeof mine.machine) &&
          read_file("/dev/urandom", mine.random, sizeof mine.random);
    mine.user = geteuid();
    mine.processes = inode("/proc/self/ns/pid");
    mine.net = inode("/proc/self/ns/net");
    memcpy(&first, &mine, sizeof first);
    if (PMPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, part->comm) != MPI_SUCCESS) return;
    may = may && memcmp(first.machine, mine.machine, sizeof mine.machine) == 0 && first.user == mine.user &&
          first.processes == mine.processes && first.net == mine.net;
    if (!all_agree(part->comm, may)) return;
    for (size_t i = 0; i < sizeof first.random; i++) snprintf(name + 2 * i, 3, "%02x", first.random[i]);
    code = trimtab_team_options_init(&options, (uint32_t)part->size);
    options.heap = 0;
    options.gather_ns = GATHER_NS;
    if (code == TRIMTAB_OK) code = trimtab_team_of_job((uint32_t)part->rank, name, &options, &team);
    if (all_agree(part->comm, code == TRIMTAB_OK)) {
        code = trimtab_team_join(team, part->rank, &part->team);
        if (code == TRIMTAB_OK) code = trimtab_rank_progress(part->team, progress, NULL);
        if (all_agree(part->comm, code == TRIMTAB_OK)) {
            part->by = BY_TEAM;
            teams++;
        } else if (part->team) {
            trimtab_rank_leave(part->team);
        }
    }
    if (code != TRIMTAB_OK)
        fprintf(stderr, "trimtab: rank %d of a communicator of %d: no team, its collectives stay with MPI: %s\n", part->rank,
                part->size, trimtab_last_error());
    if (team) trimtab_team_free(team);
}

static struct part *part_slow(MPI_Comm comm) {
    struct part *part = found(comm);
    if (part && part->by == BY_UNDECIDED && ++part->calls >= after) decide(part);
    if (part && part->by == BY_TEAM) return part;
    by_mpi++;
    return NULL;
}

/* The part of a communicator whose collectives a team carries out, or NULL. Every collective of MPI that is taken over begins with it. */
static inline struct part *part_of(MPI_Comm comm) {
    if (!on) return NULL;
    size_t at = near_place(comm);
    struct part *part = near_parts[at].part;
    if (part && near_parts[at].comm == comm && part->by == BY_TEAM) return part;
    return part_slow(comm);
}

/* ---- Errors */

/* Reports an error of a team by the communicator's error handler, which ends the program unless the program wants the error. */
static int failed(struct part *part, int code, const char *what) {
    int class = code == TRIMTAB_ARGUMENT ? MPI_ERR_BUFFER : code == TRIMTAB_NO_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
    fprintf(stderr, "trimtab: %s at rank %d of a communicator of %d: %s\n", what, part->rank, part->size,
            code == TRIMTAB_NO_MEMORY ? trimtab_error_text(code) : trimtab_last_error());
    PMPI_Comm_call_errhandler(part->comm, class);
    return class;
}

static inline int ended(struct part *part, int code, const char *what) {
    by_team++;
    return code == TRIMTAB_OK ? MPI_SUCCESS : failed(part, code, what);
}

/* ---- Types and operators */

/* Predefined types whose elements a team can combine. */
struct number {
    int type;      /* enum trimtab_type, or -1 */
    int bytes;     /* of an element of MPI's */
    int times;     /* elements of the team's in one of MPI's: 2 for complex numbers, which are only added */
    int only_bits; /* MPI_BYTE has no arithmetic */
};

static struct number signed_of(size_t bytes) {
    struct number of = {bytes == 1 ? TRIMTAB_I8 : bytes == 2 ? TRIMTAB_I16 : bytes == 4 ? TRIMTAB_I32 : TRIMTAB_I64, (int)bytes, 1, 0};
    return of;
}

static struct number unsigned_of(size_t bytes) {
    struct number of = {bytes == 1 ? TRIMTAB_U8 : bytes == 2 ? TRIMTAB_U16 : bytes == 4 ? TRIMTAB_U32 : TRIMTAB_U64, (int)bytes, 1, 0};
    return of;
}

static struct number float_of(size_t bytes, int times) {
    struct number of = {bytes == 4 ? TRIMTAB_F32 : bytes == 8 ? TRIMTAB_F64 : -1, (int)bytes * times, times, 0};
    return of;
}

static struct number number_of(MPI_Datatype type) {
    static const struct number none = {-1, 0, 1, 0}, byte = {TRIMTAB_U8, 1, 1, 1};
    if (type == MPI_DOUBLE) return float_of(sizeof(double), 1);
    if (type == MPI_INT) return signed_of(sizeof(int));
    if (type == MPI_FLOAT) return float_of(sizeof(float), 1);
    if (type == MPI_LONG) return signed_of(sizeof(long));
    if (type == MPI_DATATYPE_NULL) return none;
    if (type == MPI_UNSIGNED) return unsigned_of(sizeof(unsigned));
    if (type == MPI_UNSIGNED_LONG) return unsigned_of(sizeof(unsigned long));
    if (type == MPI_LONG_LONG) return signed_of(sizeof(long long));
    if (type == MPI_UNSIGNED_LONG_LONG) return unsigned_of(sizeof(unsigned long long));
    if (type == MPI_INT64_T) return signed_of(8);
    if (type == MPI_UINT64_T) return unsigned_of(8);
    if (type == MPI_INT32_T) return signed_of(4);
    if (type == MPI_UINT32_T) return unsigned_of(4);
    if (type == MPI_SHORT) return signed_of(sizeof(short));
    if (type == MPI_UNSIGNED_SHORT) return unsigned_of(sizeof(unsigned short));
    if (type == MPI_INT16_T) return signed_of(2);
    if (type == MPI_UINT16_T) return unsigned_of(2);
    if (type == MPI_SIGNED_CHAR || type == MPI_INT8_T) return signed_of(1);
    if (type == MPI_UNSIGNED_CHAR || type == MPI_UINT8_T) return unsigned_of(1);
    if (type == MPI_BYTE) return byte;
    if (type == MPI_AINT) return signed_of(sizeof(MPI_Aint));
    if (type == MPI_OFFSET) return signed_of(sizeof(MPI_Offset));
    if (type == MPI_COUNT) return signed_of(sizeof(MPI_Count));
    if (type == MPI_INTEGER) return signed_of(sizeof(MPI_Fint));
    if (type == MPI_DOUBLE_PRECISION || type == MPI_REAL8) return float_of(8, 1);
    if (type == MPI_REAL || type == MPI_REAL4) {
        int bytes = 0;
        PMPI_Type_size(type, &bytes);
        return float_of((size_t)bytes, 1);
    }
    if (type == MPI_DOUBLE_COMPLEX || type == MPI_C_DOUBLE_COMPLEX) return float_of(8, 2);
    if (type == MPI_C_FLOAT_COMPLEX) return float_of(4, 2);
    if (type == MPI_COMPLEX) {
        int bytes = 0;
        PMPI_Type_size(type, &bytes);
        return float_of((size_t)bytes / 2, 2);
    }
    if (type == MPI_INTEGER1) return signed_of(1);
    if (type == MPI_INTEGER2) return signed_of(2);
    if (type == MPI_INTEGER4) return signed_of(4);
    if (type == MPI_INTEGER8) return signed_of(8);
    return none;
}

/* Logical operators, as operators of the program's own. */
#define LOGICAL(name, type, combined)                                                    \
    static void name##_##type(void *into, const void *from, size_t count, void *unused) { \
        type *a = into;                                                                  \
        const type *b = from;                                                            \
        (void)unused;                                                                    \
        for (size_t i = 0; i < count; i++) a[i] = (combined);                            \
    }
#define LOGICALS(type)                       \
    LOGICAL(and, type, a[i] && b[i])         \
    LOGICAL(or, type, a[i] || b[i])          \
    LOGICAL(xor, type, !a[i] != !b[i])       \
    static const trimtab_own_operator logical_##type[] = {and_##type, or_##type, xor_##type};
LOGICALS(int8_t)
LOGICALS(int16_t)
LOGICALS(int32_t)
LOGICALS(int64_t)

/* How a team combines: an operator of its own, or one of this library's. */
struct combined {
    struct number number;
    uint32_t operation;
    trimtab_own_operator own;
};

/* Returns 0 if a team cannot combine elements of this type by this operator. */
static int combined_of(MPI_Datatype type, MPI_Op op, struct combined *to) {
    struct number number = number_of(type);
    int floats = number.type == TRIMTAB_F32 || number.type == TRIMTAB_F64, logical = -1;
    to->number = number;
    to->own = NULL;
    to->operation = 0;
    if (number.type < 0) return 0;
    if (op == MPI_SUM) {
        to->operation = TRIMTAB_SUM;
        return !number.only_bits;
    }
    if (number.times != 1) return 0;
    if (op == MPI_MAX || op == MPI_MIN || op == MPI_PROD) {
        to->operation = op == MPI_MAX ? TRIMTAB_MAX : op == MPI_MIN ? TRIMTAB_MIN : TRIMTAB_PROD;
        return !number.only_bits;
    }
    if (floats) return 0;
    if (op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR) {
        to->operation = op == MPI_BAND ? TRIMTAB_AND : op == MPI_BOR ? TRIMTAB_OR : TRIMTAB_XOR;
        return 1;
    }
    if (op == MPI_LAND) logical = 0;
    if (op == MPI_LOR) logical = 1;
    if (op == MPI_LXOR) logical = 2;
    if (logical < 0 || number.only_bits) return 0;
    to->own = number.bytes == 1   ? logical_int8_t[logical]
              : number.bytes == 2 ? logical_int16_t[logical]
              : number.bytes == 4 ? logical_int32_t[logical]
                                  : logical_int64_t[logical];
    return 1;
}

static int combine(struct part *part, uint32_t kind, const struct combined *as, const void *input, void *output, size_t count, int root) {
    struct trimtab_collective call = trimtab_collective_of(kind, input, output, count * (size_t)as->number.times, (uint32_t)as->number.type,
                                                           as->operation, (uint32_t)root, TRIMTAB_MINE);
    call.own = as->own;
    return trimtab_call(part->team, &call);
}

/* Bytes of an element of a type whose elements lie one behind the other in memory in the order of MPI; 0 for others, which are packed. */
static size_t plain(MPI_Datatype type) {
    int integers, addresses, types, combiner = MPI_COMBINER_DUP, bytes = 0;
    MPI_Aint begin = 0, extent = 0, true_begin = 0, true_extent = 0;
    struct number number = number_of(type);
    if (number.bytes > 0) return (size_t)number.bytes;
    if (type == MPI_CHAR) return 1;
    if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS || combiner != MPI_COMBINER_NAMED) return 0;
    if (PMPI_Type_size(type, &bytes) != MPI_SUCCESS || PMPI_Type_get_extent(type, &begin, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent(type, &true_begin, &true_extent) != MPI_SUCCESS)
        return 0;
    return begin == 0 && true_begin == 0 && extent == bytes && true_extent == bytes ? (size_t)bytes : 0;
}

/* ---- Data */

/* One side of a call that moves data, as bytes: blocks at `base`, which are the program's own or packed copies. */
struct side {
    char *base;
    size_t *counts, *places; /* for each block; NULL if all have `bytes` bytes, one behind the other */
    size_t bytes;            /* of a block, if all are alike */
    void *room;              /* to be freed */
    /* For packed blocks: where they belong. */
    char *buffer;
    const int *numbers, *displacements;
    int number, blocks;
    MPI_Aint extent;
    MPI_Datatype type;
};

static void drop(struct side *side) { free(side->room); }

static int count_at(const struct side *side, int block) { return side->numbers ? side->numbers[block] : side->number; }

static char *address_at(const struct side *side, int block) {
    MPI_Aint at = side->displacements ? (MPI_Aint)side->displacements[block] : side->numbers ? 0 : (MPI_Aint)block * side->number;
    return side->buffer + at * side->extent;
}

/* Describes `blocks` blocks of a buffer: `number` elements each, or `numbers` with displacements. Returns an error of MPI. `reads`: whether the
 * blocks have data already (of a side that is packed). */
static int describe(struct side *side, struct part *part, const void *buffer, int blocks, int number, const int *numbers,
                    const int *displacements, MPI_Datatype type, int reads) {
    size_t size = plain(type), words = numbers ? 2 * (size_t)blocks * sizeof(size_t) : 0, all = 0;
    int bytes = 0, error;
    MPI_Aint begin;
    memset(side, 0, sizeof *side);
    side->buffer = (char *)(uintptr_t)buffer;
    side->numbers = numbers;
    side->displacements = displacements;
    side->number = number;
    side->blocks = blocks;
    side->type = type;
    side->base = side->buffer;
    side->bytes = size * (size_t)number;
    if (size && !numbers) return MPI_SUCCESS;
    if (!size) {
        if ((error = PMPI_Type_size(type, &bytes)) != MPI_SUCCESS) return error;
        if ((error = PMPI_Type_get_extent(type, &begin, &side->extent)) != MPI_SUCCESS) return error;
        for (int i = 0; i < blocks; i++) all += (size_t)count_at(side, i) * (size_t)bytes;
        side->bytes = (size_t)number * (size_t)bytes;
    }
    side->room = malloc(words + all + 1);
    if (!side->room) return MPI_ERR_NO_MEM;
    if (numbers) {
        side->counts = side->room;
        side->places = side->counts + blocks;
    }
    if (size) {
        /* Displacements may be negative. */
        long long least = 0;
        for (int i = 0; i < blocks; i++)
            if (displacements[i] < least) least = displacements[i];
        side->base += least * (long long)size;
        for (int i = 0; i < blocks; i++) {
            side->counts[i] = (size_t)numbers[i] * size;
            side->places[i] = (size_t)(displacements[i] - least) * size;
        }
        return MPI_SUCCESS;
    }
    side->base = (char *)side->room + words;
    all = 0;
    for (int i = 0; i < blocks; i++) {
        size_t block = (size_t)count_at(side, i) * (size_t)bytes;
        int at = 0, most = 0;
        if (block > INT_MAX) return MPI_ERR_COUNT;
        if (numbers) {
            side->counts[i] = block;
            side->places[i] = all;
        }
        if (reads && block > 0) {
            if ((error = PMPI_Pack_size(count_at(side, i), type, part->comm, &most)) != MPI_SUCCESS) return error;
            char *packed = (size_t)most > block ? malloc((size_t)most) : side->base + all;
            if (!packed) return MPI_ERR_NO_MEM;
            error = PMPI_Pack(address_at(side, i), count_at(side, i), type, packed, most > (int)block ? most : (int)block, &at, part->comm);
            if (packed != side->base + all) {
                memcpy(side->base + all, packed, (size_t)at < block ? (size_t)at : block);
                free(packed);
            }
            if (error != MPI_SUCCESS) return error;
            if ((size_t)at != block) return MPI_ERR_TYPE;
        }
        all += block;
    }
    return MPI_SUCCESS;
}

/* Brings packed blocks, all or only one, to the program's buffer. */
static int deliver(struct side *side, struct part *part, int only) {
    int bytes = 0, error = MPI_SUCCESS;
    if (!side->extent && !side->room) return MPI_SUCCESS;
    if (plain(side->type)) return MPI_SUCCESS;
    if ((error = PMPI_Type_size(side->type, &bytes)) != MPI_SUCCESS) return error;
    char *at = side->base;
    for (int i = 0; i < side->blocks && error == MPI_SUCCESS; i++) {
        int block = count_at(side, i) * bytes, position = 0;
        if ((only < 0 || only == i) && block > 0)
            error = PMPI_Unpack(at, block, &position, address_at(side, i), count_at(side, i), side->type, part->comm);
        at += block;
    }
    return error;
}

/* Ends a call that moved data. An error before the call leaves the other ranks waiting, as in MPI: then the handler ends them. */
static int moved(struct part *part, struct side *from, struct side *to, int error, int code, const char *what) {
    if (error == MPI_SUCCESS && code == TRIMTAB_OK && to) error = deliver(to, part, -1);
    if (from) drop(from);
    if (to) drop(to);
    if (code != TRIMTAB_OK) return ended(part, code, what);
    by_team++;
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(part->comm, error);
    return error;
}

/* The error of a rank whose blocks for itself differ in size. */
static int unequal(int both, const struct side *in, const struct side *out) {
    return both && in->bytes != out->bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
}

static int any_negative(const int *numbers, int count) {
    for (int i = 0; i < count; i++)
        if (numbers[i] < 0) return 1;
    return 0;
}

/* ---- The collectives */

/* In a call that goes to MPI although the communicator has a team. */
#define TO_MPI(call) return by_mpi++, (call)

static inline int wrong(int count, MPI_Datatype type) { return count < 0 || type == MPI_DATATYPE_NULL; }
static inline int no_rank(const struct part *part, int root) { return root < 0 || root >= part->size; }

EXPORT int MPI_Barrier(MPI_Comm comm) {
    struct part *part = part_of(comm);
    if (!part) return PMPI_Barrier(comm);
    return ended(part, trimtab_barrier(part->team), "MPI_Barrier");
}

EXPORT int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side side;
    int code = TRIMTAB_OK;
    if (!part) return PMPI_Bcast(buffer, count, type, root, comm);
    if (UNLIKELY(wrong(count, type) || no_rank(part, root))) TO_MPI(PMPI_Bcast(buffer, count, type, root, comm));
    if (part->size == 2 && count > 0) {
        int bytes = 0;
        /* The same at both ranks, whatever types they name. */
        PMPI_Type_size(type, &bytes);
        if ((size_t)bytes * (size_t)count >= PAIR_BROADCAST_MOST) TO_MPI(PMPI_Bcast(buffer, count, type, root, comm));
    }
    int error = describe(&side, part, buffer, 1, count, NULL, NULL, type, part->rank == root);
    if (error == MPI_SUCCESS) code = trimtab_broadcast(part->team, side.base, side.bytes, TRIMTAB_U8, (uint32_t)root, TRIMTAB_MINE);
    return moved(part, NULL, &side, error, code, "MPI_Bcast");
}

EXPORT int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct combined as;
    if (!part) return PMPI_Reduce(from, to, count, type, op, root, comm);
    if (UNLIKELY(count < 0 || no_rank(part, root) || (from == MPI_IN_PLACE && part->rank != root) || !combined_of(type, op, &as)))
        TO_MPI(PMPI_Reduce(from, to, count, type, op, root, comm));
    int at_root = part->rank == root;
    if (at_root && from == MPI_IN_PLACE) from = to;
    return ended(part, combine(part, TRIMTAB_REDUCE, &as, from, at_root ? to : NULL, (size_t)count, root), "MPI_Reduce");
}

EXPORT int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct combined as;
    if (!part) return PMPI_Allreduce(from, to, count, type, op, comm);
    if (UNLIKELY(count < 0 || to == MPI_IN_PLACE || !combined_of(type, op, &as))) TO_MPI(PMPI_Allreduce(from, to, count, type, op, comm));
    if (from == MPI_IN_PLACE) from = to;
    return ended(part, combine(part, TRIMTAB_ALLREDUCE, &as, from, to, (size_t)count, 0), "MPI_Allreduce");
}

EXPORT int MPI_Scan(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct combined as;
    if (!part) return PMPI_Scan(from, to, count, type, op, comm);
    if (UNLIKELY(count < 0 || to == MPI_IN_PLACE || !combined_of(type, op, &as))) TO_MPI(PMPI_Scan(from, to, count, type, op, comm));
    if (from == MPI_IN_PLACE) from = to;
    return ended(part, combine(part, TRIMTAB_SCAN, &as, from, to, (size_t)count, 0), "MPI_Scan");
}

EXPORT int MPI_Reduce_scatter_block(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct combined as;
    if (!part) return PMPI_Reduce_scatter_block(from, to, count, type, op, comm);
    if (UNLIKELY(count < 0 || to == MPI_IN_PLACE || !combined_of(type, op, &as))) TO_MPI(PMPI_Reduce_scatter_block(from, to, count, type, op, comm));
    if (from == MPI_IN_PLACE) from = to;
    return ended(part, combine(part, TRIMTAB_REDUCE_SCATTER, &as, from, to, (size_t)count, 0), "MPI_Reduce_scatter_block");
}

EXPORT int MPI_Reduce_scatter(const void *from, void *to, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct combined as;
    if (!part) return PMPI_Reduce_scatter(from, to, counts, type, op, comm);
    int alike = counts[0] >= 0 && combined_of(type, op, &as);
    for (int i = 1; alike && i < part->size; i++) alike = counts[i] == counts[0];
    if (!alike) TO_MPI(PMPI_Reduce_scatter(from, to, counts, type, op, comm));
    if (from == MPI_IN_PLACE) from = to;
    return ended(part, combine(part, TRIMTAB_REDUCE_SCATTER, &as, from, to, (size_t)counts[0], 0), "MPI_Reduce_scatter");
}

EXPORT int MPI_Gather(const void *from, int given, MPI_Datatype type, void *to, int got, MPI_Datatype to_type, int root, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Gather(from, given, type, to, got, to_type, root, comm);
    int at_root = part->rank == root, in_place = at_root && from == MPI_IN_PLACE;
    if (UNLIKELY(no_rank(part, root) || (!in_place && wrong(given, type)) || (at_root && wrong(got, to_type))))
        TO_MPI(PMPI_Gather(from, given, type, to, got, to_type, root, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (!in_place) error = describe(&in, part, from, 1, given, NULL, NULL, type, 1);
    if (error == MPI_SUCCESS && at_root) error = describe(&out, part, to, part->size, got, NULL, NULL, to_type, in_place);
    if (in_place) {
        in.base = out.base + out.bytes * (size_t)part->rank;
        in.bytes = out.bytes;
    }
    if (error == MPI_SUCCESS) error = unequal(at_root, &in, &out);
    if (error == MPI_SUCCESS)
        code = trimtab_gather(part->team, in.base, at_root ? out.base : NULL, in.bytes, TRIMTAB_U8, (uint32_t)root, TRIMTAB_MINE);
    return moved(part, &in, at_root ? &out : NULL, error, code, "MPI_Gather");
}

EXPORT int MPI_Allgather(const void *from, int given, MPI_Datatype type, void *to, int got, MPI_Datatype to_type, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Allgather(from, given, type, to, got, to_type, comm);
    int in_place = from == MPI_IN_PLACE;
    if (UNLIKELY((!in_place && wrong(given, type)) || wrong(got, to_type))) TO_MPI(PMPI_Allgather(from, given, type, to, got, to_type, comm));
    memset(&in, 0, sizeof in);
    if (!in_place) error = describe(&in, part, from, 1, given, NULL, NULL, type, 1);
    if (error == MPI_SUCCESS) error = describe(&out, part, to, part->size, got, NULL, NULL, to_type, in_place);
    else memset(&out, 0, sizeof out);
    if (in_place) {
        in.base = out.base + out.bytes * (size_t)part->rank;
        in.bytes = out.bytes;
    }
    if (error == MPI_SUCCESS) error = unequal(1, &in, &out);
    if (error == MPI_SUCCESS) code = trimtab_allgather(part->team, in.base, out.base, in.bytes, TRIMTAB_U8, TRIMTAB_MINE);
    return moved(part, &in, &out, error, code, "MPI_Allgather");
}

EXPORT int MPI_Scatter(const void *from, int given, MPI_Datatype type, void *to, int got, MPI_Datatype to_type, int root, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Scatter(from, given, type, to, got, to_type, root, comm);
    int at_root = part->rank == root, in_place = at_root && to == MPI_IN_PLACE;
    if (UNLIKELY(no_rank(part, root) || (at_root && wrong(given, type)) || (!in_place && wrong(got, to_type))))
        TO_MPI(PMPI_Scatter(from, given, type, to, got, to_type, root, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (at_root) error = describe(&in, part, from, part->size, given, NULL, NULL, type, 1);
    if (error == MPI_SUCCESS && !in_place) error = describe(&out, part, to, 1, got, NULL, NULL, to_type, 0);
    if (in_place) {
        out.base = in.base + in.bytes * (size_t)part->rank;
        out.bytes = in.bytes;
    }
    if (error == MPI_SUCCESS) error = unequal(at_root, &in, &out);
    if (error == MPI_SUCCESS)
        code = trimtab_scatter(part->team, at_root ? in.base : NULL, out.base, out.bytes, TRIMTAB_U8, (uint32_t)root, TRIMTAB_MINE);
    return moved(part, &in, in_place ? NULL : &out, error, code, "MPI_Scatter");
}

EXPORT int MPI_Alltoall(const void *from, int given, MPI_Datatype type, void *to, int got, MPI_Datatype to_type, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Alltoall(from, given, type, to, got, to_type, comm);
    int in_place = from == MPI_IN_PLACE;
    if (UNLIKELY((!in_place && wrong(given, type)) || wrong(got, to_type))) TO_MPI(PMPI_Alltoall(from, given, type, to, got, to_type, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (!in_place) error = describe(&in, part, from, part->size, given, NULL, NULL, type, 1);
    if (error == MPI_SUCCESS) error = describe(&out, part, to, part->size, got, NULL, NULL, to_type, in_place);
    if (error == MPI_SUCCESS) error = unequal(!in_place, &in, &out);
    if (error == MPI_SUCCESS)
        code = trimtab_alltoall(part->team, in_place ? out.base : in.base, out.base, out.bytes, TRIMTAB_U8, TRIMTAB_MINE);
    return moved(part, &in, &out, error, code, "MPI_Alltoall");
}

EXPORT int MPI_Gatherv(const void *from, int given, MPI_Datatype type, void *to, const int counts[], const int places[],
                       MPI_Datatype to_type, int root, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Gatherv(from, given, type, to, counts, places, to_type, root, comm);
    int at_root = part->rank == root, in_place = at_root && from == MPI_IN_PLACE;
    if (UNLIKELY(no_rank(part, root) || (!in_place && wrong(given, type)) ||
                 (at_root && (!counts || !places || any_negative(counts, part->size) || to_type == MPI_DATATYPE_NULL))))
        TO_MPI(PMPI_Gatherv(from, given, type, to, counts, places, to_type, root, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (!in_place) error = describe(&in, part, from, 1, given, NULL, NULL, type, 1);
    if (error == MPI_SUCCESS && at_root) error = describe(&out, part, to, part->size, 0, counts, places, to_type, in_place);
    if (in_place && error == MPI_SUCCESS) {
        in.base = out.base + out.places[part->rank];
        in.bytes = out.counts[part->rank];
    }
    if (error == MPI_SUCCESS)
        code = trimtab_gatherv(part->team, in.base, in.bytes, at_root ? out.base : NULL, out.counts, out.places, TRIMTAB_U8, (uint32_t)root,
                               TRIMTAB_MINE);
    return moved(part, &in, at_root ? &out : NULL, error, code, "MPI_Gatherv");
}

EXPORT int MPI_Allgatherv(const void *from, int given, MPI_Datatype type, void *to, const int counts[], const int places[],
                          MPI_Datatype to_type, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Allgatherv(from, given, type, to, counts, places, to_type, comm);
    int in_place = from == MPI_IN_PLACE;
    if (UNLIKELY((!in_place && wrong(given, type)) || !counts || !places || any_negative(counts, part->size) || to_type == MPI_DATATYPE_NULL))
        TO_MPI(PMPI_Allgatherv(from, given, type, to, counts, places, to_type, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (!in_place) error = describe(&in, part, from, 1, given, NULL, NULL, type, 1);
    if (error == MPI_SUCCESS) error = describe(&out, part, to, part->size, 0, counts, places, to_type, in_place);
    if (in_place && error == MPI_SUCCESS) {
        in.base = out.base + out.places[part->rank];
        in.bytes = out.counts[part->rank];
    }
    if (error == MPI_SUCCESS)
        code = trimtab_allgatherv(part->team, in.base, in.bytes, out.base, out.counts, out.places, TRIMTAB_U8, TRIMTAB_MINE);
    return moved(part, &in, &out, error, code, "MPI_Allgatherv");
}

EXPORT int MPI_Scatterv(const void *from, const int counts[], const int places[], MPI_Datatype type, void *to, int got,
                        MPI_Datatype to_type, int root, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Scatterv(from, counts, places, type, to, got, to_type, root, comm);
    int at_root = part->rank == root, in_place = at_root && to == MPI_IN_PLACE;
    if (UNLIKELY(no_rank(part, root) || (!in_place && wrong(got, to_type)) ||
                 (at_root && (!counts || !places || any_negative(counts, part->size) || type == MPI_DATATYPE_NULL))))
        TO_MPI(PMPI_Scatterv(from, counts, places, type, to, got, to_type, root, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (at_root) error = describe(&in, part, from, part->size, 0, counts, places, type, 1);
    if (error == MPI_SUCCESS && !in_place) error = describe(&out, part, to, 1, got, NULL, NULL, to_type, 0);
    if (in_place && error == MPI_SUCCESS) {
        out.base = in.base + in.places[part->rank];
        out.bytes = in.counts[part->rank];
    }
    if (error == MPI_SUCCESS)
        code = trimtab_scatterv(part->team, at_root ? in.base : NULL, in.counts, in.places, out.base, out.bytes, TRIMTAB_U8, (uint32_t)root,
                                TRIMTAB_MINE);
    return moved(part, &in, in_place ? NULL : &out, error, code, "MPI_Scatterv");
}

EXPORT int MPI_Alltoallv(const void *from, const int given[], const int given_places[], MPI_Datatype type, void *to, const int got[],
                         const int got_places[], MPI_Datatype to_type, MPI_Comm comm) {
    struct part *part = part_of(comm);
    struct side in, out;
    int code = TRIMTAB_OK, error = MPI_SUCCESS;
    if (!part) return PMPI_Alltoallv(from, given, given_places, type, to, got, got_places, to_type, comm);
    int in_place = from == MPI_IN_PLACE;
    if (UNLIKELY((!in_place && (!given || !given_places || any_negative(given, part->size) || type == MPI_DATATYPE_NULL)) || !got ||
                 !got_places || any_negative(got, part->size) || to_type == MPI_DATATYPE_NULL))
        TO_MPI(PMPI_Alltoallv(from, given, given_places, type, to, got, got_places, to_type, comm));
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (!in_place) error = describe(&in, part, from, part->size, 0, given, given_places, type, 1);
    if (error == MPI_SUCCESS) error = describe(&out, part, to, part->size, 0, got, got_places, to_type, in_place);
    const struct side *source = in_place ? &out : &in;
    if (error == MPI_SUCCESS)
        code = trimtab_alltoallv(part->team, source->base, source->counts, source->places, out.base, out.counts, out.places, TRIMTAB_U8,
                                 TRIMTAB_MINE);
    return moved(part, &in, &out, error, code, "MPI_Alltoallv");
}

/* ---- Begin and end */

/* All ranks of the program agree whether teams are used at all, and from which collective of a communicator on. */
static void begin(void) {
    /* One function of MPI for this may call another one. */
    if (own != MPI_COMM_NULL) return;
    int level = MPI_THREAD_SINGLE, said[2], agreed[2];
    const char *asked = getenv("TRIMTAB_MPI"), *number = getenv("TRIMTAB_MPI_AFTER"), *threads = getenv("TRIMTAB_MPI_THREADS");
    PMPI_Query_thread(&level);
    said[0] = !(asked && !strcmp(asked, "off"));
    /* With these levels any thread may call, and the team is of one. */
    if (level > MPI_THREAD_FUNNELED && !(threads && !strcmp(threads, "main"))) said[0] = 0;
    if (said[0] && PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key, NULL) != MPI_SUCCESS) said[0] = 0;
    if (said[0] && PMPI_Comm_dup(MPI_COMM_SELF, &own) != MPI_SUCCESS) said[0] = 0;
    /* The minimum of both: the greatest `after` is the least of its negatives. */
    said[1] = number ? -atoi(number) : -AFTER_USUAL;
    if (PMPI_Allreduce(said, agreed, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD) != MPI_SUCCESS) return;
    after = -agreed[1];
    on = agreed[0];
}

static void end(void) {
    int rank = 0;
    if (getenv("TRIMTAB_MPI_REPORT") && PMPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS && rank == 0)
        fprintf(stderr, "trimtab: collectives of rank 0: %lu by teams, %lu by MPI%s\n", by_team, by_mpi,
                on ? "" : " (teams are off: TRIMTAB_MPI=off, or the program asks for a level of threads above MPI_THREAD_FUNNELED)");
    on = 0;
    for (struct part *part = parts; part; part = part->next) leave(part);
    if (own != MPI_COMM_NULL) PMPI_Comm_free(&own);
}

EXPORT int MPI_Init(int *count, char ***words) {
    int error = PMPI_Init(count, words);
    if (error == MPI_SUCCESS) begin();
    return error;
}

EXPORT int MPI_Init_thread(int *count, char ***words, int wanted, int *given) {
    int error = PMPI_Init_thread(count, words, wanted, given);
    if (error == MPI_SUCCESS) begin();
    return error;
}

EXPORT int MPI_Finalize(void) {
    end();
    return PMPI_Finalize();
}

/* ---- Fortran. Open MPI's functions for Fortran call PMPI_, so they are taken over here, for mpif.h, `use mpi` and `use mpi_f08`, whose handles
 * begin with the same integer. */
#ifdef OPEN_MPI

extern char mpi_fortran_in_place_, mpi_fortran_bottom_;
#pragma weak mpi_fortran_in_place_
#pragma weak mpi_fortran_bottom_

static void *from_fortran(void *address) {
    if (&mpi_fortran_in_place_ && address == (void *)&mpi_fortran_in_place_) return MPI_IN_PLACE;
    if (&mpi_fortran_bottom_ && address == (void *)&mpi_fortran_bottom_) return MPI_BOTTOM;
    return address;
}

#define BUFFER(name) from_fortran(name)
#define TYPE(name) PMPI_Type_f2c(*name)
#define OP(name) PMPI_Op_f2c(*name)
#define COMM(name) PMPI_Comm_f2c(*name)
#define FORTRAN(name, declared, call)                                 \
    static void fortran_##name declared {                             \
        int done = call;                                              \
        if (error) *error = done;                                     \
    }                                                                 \
    EXPORT void mpi_##name##_ declared __attribute__((alias("fortran_" #name))); \
    EXPORT void mpi_##name##__ declared __attribute__((alias("fortran_" #name))); \
    EXPORT void mpi_##name##_f08_ declared __attribute__((alias("fortran_" #name)));

#define F MPI_Fint *
FORTRAN(barrier, (F comm, F error), MPI_Barrier(COMM(comm)))
FORTRAN(bcast, (void *buffer, F count, F type, F root, F comm, F error), MPI_Bcast(BUFFER(buffer), *count, TYPE(type), *root, COMM(comm)))
FORTRAN(reduce, (void *from, void *to, F count, F type, F op, F root, F comm, F error),
        MPI_Reduce(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), *root, COMM(comm)))
FORTRAN(allreduce, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Allreduce(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(scan, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Scan(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(reduce_scatter_block, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Reduce_scatter_block(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(reduce_scatter, (void *from, void *to, F counts, F type, F op, F comm, F error),
        MPI_Reduce_scatter(BUFFER(from), BUFFER(to), counts, TYPE(type), OP(op), COMM(comm)))
FORTRAN(gather, (void *from, F given, F type, void *to, F got, F to_type, F root, F comm, F error),
        MPI_Gather(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), *root, COMM(comm)))
FORTRAN(allgather, (void *from, F given, F type, void *to, F got, F to_type, F comm, F error),
        MPI_Allgather(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), COMM(comm)))
FORTRAN(scatter, (void *from, F given, F type, void *to, F got, F to_type, F root, F comm, F error),
        MPI_Scatter(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), *root, COMM(comm)))
FORTRAN(alltoall, (void *from, F given, F type, void *to, F got, F to_type, F comm, F error),
        MPI_Alltoall(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), COMM(comm)))
FORTRAN(gatherv, (void *from, F given, F type, void *to, F counts, F places, F to_type, F root, F comm, F error),
        MPI_Gatherv(BUFFER(from), *given, TYPE(type), BUFFER(to), counts, places, TYPE(to_type), *root, COMM(comm)))
FORTRAN(allgatherv, (void *from, F given, F type, void *to, F counts, F places, F to_type, F comm, F error),
        MPI_Allgatherv(BUFFER(from), *given, TYPE(type), BUFFER(to), counts, places, TYPE(to_type), COMM(comm)))
FORTRAN(scatterv, (void *from, F counts, F places, F type, void *to, F got, F to_type, F root, F comm, F error),
        MPI_Scatterv(BUFFER(from), counts, places, TYPE(type), BUFFER(to), *got, TYPE(to_type), *root, COMM(comm)))
FORTRAN(alltoallv, (void *from, F given, F given_places, F type, void *to, F got, F got_places, F to_type, F comm, F error),
        MPI_Alltoallv(BUFFER(from), given, given_places, TYPE(type), BUFFER(to), got, got_places, TYPE(to_type), COMM(comm)))
FORTRAN(init, (F error), MPI_Init(NULL, NULL))
FORTRAN(init_thread, (F wanted, F given, F error), MPI_Init_thread(NULL, NULL, *wanted, given))
FORTRAN(finalize, (F error), MPI_Finalize())
#else
/* MPICH's call the functions above, but for those of `use mpi_f08` without buffers. */
typedef void (*f08_function)(void);

static f08_function next_of(const char *name) {
    f08_function next = (f08_function)dlsym(RTLD_NEXT, name);
    if (next) return next;
    fprintf(stderr, "trimtab: the MPI has no function %s behind this library\n", name);
    abort();
}

EXPORT void mpi_init_f08_(MPI_Fint *error) {
    ((void (*)(MPI_Fint *))next_of("mpi_init_f08_"))(error);
    if (!error || *error == MPI_SUCCESS) begin();
}

EXPORT void mpi_init_thread_f08_(MPI_Fint *wanted, MPI_Fint *given, MPI_Fint *error) {
    ((void (*)(MPI_Fint *, MPI_Fint *, MPI_Fint *))next_of("mpi_init_thread_f08_"))(wanted, given, error);
    if (!error || *error == MPI_SUCCESS) begin();
}

EXPORT void mpi_finalize_f08_(MPI_Fint *error) {
    end();
    ((void (*)(MPI_Fint *))next_of("mpi_finalize_f08_"))(error);
}

EXPORT void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error) {
    int done = MPI_Barrier(PMPI_Comm_f2c(*comm));
    if (error) *error = done;
}
#endif
