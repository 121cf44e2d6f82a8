/* Calls that move data as bytes, and calls that combine it. */
#include "trimtab_mpi.h"

/* Bytes from which MPI broadcasts between two ranks: the receiver reads them through the kernel, which both Open MPI and MPICH do faster. */
#define PAIR_BROADCAST_MOST ((size_t)768 << 10)

#if MPI_VERSION >= 4
typedef MPI_Count packed_count;
#define PACKING(name) PMPI_##name##_c
#else
typedef int packed_count;
#define PACKING(name) PMPI_##name
#endif

/* ---- Begin and end of a call */

static int leave_to_mpi(struct part *part) {
    part->by_mpi++;
    return LEFT_TO_MPI;
}

/* Reports an error of a team by the communicator's error handler, which ends the program unless the program wants the error. */
static int failed(struct part *part, int code) {
    int class = code == TRIMTAB_ARGUMENT ? MPI_ERR_BUFFER : code == TRIMTAB_NO_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
    fprintf(stderr, "trimtab: %s at rank %d of a communicator of %d: %s\n", part->call, part->rank, part->size,
            code == TRIMTAB_NO_MEMORY ? trimtab_error_text(code) : trimtab_last_error());
    PMPI_Comm_call_errhandler(part->comm, class);
    return class;
}

static inline int ended(struct part *part, int code) {
    part->by_team++;
    return code == TRIMTAB_OK ? MPI_SUCCESS : failed(part, code);
}

/* ---- A buffer as the program names it */

static MPI_Count count_at(const struct buffer *of, int block) {
    if (!of->varied) return of->count;
    return of->wide ? ((const MPI_Count *)of->counts)[block] : ((const int *)of->counts)[block];
}

/* In elements; in bytes if the blocks have types of their own. */
static MPI_Aint place_at(const struct buffer *of, int block) {
    if (!of->varied) return (MPI_Aint)(block * of->count);
    return of->wide ? ((const MPI_Aint *)of->places)[block] : ((const int *)of->places)[block];
}

static MPI_Datatype type_at(const struct buffer *of, int block) { return of->types ? of->types[block] : of->type; }

/* Whether MPI will report an error. */
static int invalid(const struct buffer *of, int blocks) {
    if (of->at == MPI_IN_PLACE) return 1;
    if (!of->varied) return of->count < 0 || of->type == MPI_DATATYPE_NULL;
    if (!of->counts || !of->places || (!of->types && of->type == MPI_DATATYPE_NULL)) return 1;
    for (int i = 0; i < blocks; i++)
        if (count_at(of, i) < 0 || type_at(of, i) == MPI_DATATYPE_NULL) return 1;
    return 0;
}

static size_t bytes_of(MPI_Datatype type) {
    size_t size = plain(type);
    MPI_Count bytes = 0;
    if (size) return size;
    return PMPI_Type_size_x(type, &bytes) == MPI_SUCCESS && bytes > 0 ? (size_t)bytes : 0;
}

MPI_Count alike(const struct part *part, const void *counts, int wide) {
    struct buffer of = varied_of(NULL, counts, NULL, wide, MPI_BYTE, NULL);
    if (!counts) return -1;
    MPI_Count first = count_at(&of, 0);
    for (int i = 1; i < part->size; i++)
        if (count_at(&of, i) != first) return -1;
    return first;
}

/* ---- One side of a call, as bytes: blocks at `base`, which are the program's own or packed copies */

struct side {
    char *base;
    size_t *counts, *places; /* for each block; NULL if all have `bytes` bytes, one behind the other */
    size_t bytes;            /* of a block, if all are alike */
    void *room;              /* to be freed */
    struct buffer of;        /* where packed blocks belong */
    int blocks, packed;
};

/* Blocks of the program's that are used where they are. The base is the first of them: places may be negative, and addresses if the buffer is
 * MPI_BOTTOM. */
static void lay(struct side *side) {
    long long least = 0;
    int any = 0;
    for (int i = 0; i < side->blocks; i++) {
        size_t bytes = bytes_of(type_at(&side->of, i));
        long long at = place_at(&side->of, i) * (side->of.types ? 1 : (long long)bytes);
        side->counts[i] = (size_t)count_at(&side->of, i) * bytes;
        side->places[i] = (size_t)at;
        if (side->counts[i] && (!any || at < least)) least = at;
        any |= side->counts[i] > 0;
    }
    side->base += least;
    for (int i = 0; i < side->blocks; i++) side->places[i] = side->counts[i] ? side->places[i] - (size_t)least : 0;
}

static char *address_at(const struct buffer *of, int block) {
    MPI_Aint begin = 0, extent = 1;
    if (!of->types) PMPI_Type_get_extent(of->type, &begin, &extent);
    return (char *)of->at + place_at(of, block) * extent;
}

/* A block that is packed or unpacked. */
struct block {
    char *at;
    packed_count count;
    MPI_Datatype type;
    int own; /* the type is to be freed */
};

/* MPICH neither packs from address 0, which MPI_BOTTOM is, nor unpacks to it: there the block is of a type with another origin. */
static int block_at(const struct buffer *of, int number, struct block *block) {
    enum { ORIGIN = 4096 };
    MPI_Aint back = -ORIGIN;
    int error, count = (int)count_at(of, number);
    block->at = address_at(of, number);
    block->count = (packed_count)count_at(of, number);
    block->type = type_at(of, number);
    block->own = 0;
    if (block->at || !count) return MPI_SUCCESS;
    if (count_at(of, number) > INT_MAX) return MPI_ERR_COUNT;
    if ((error = PMPI_Type_create_hindexed(1, &count, &back, block->type, &block->type)) != MPI_SUCCESS) return error;
    block->own = 1;
    block->at = (char *)(uintptr_t)ORIGIN;
    block->count = 1;
    return PMPI_Type_commit(&block->type);
}

/* Packs a block of `bytes` bytes. */
static int pack(const struct side *side, struct part *part, int number, char *to, size_t bytes) {
    packed_count most = 0, at = 0;
    struct block block;
    int error = block_at(&side->of, number, &block);
    if (error == MPI_SUCCESS) error = PACKING(Pack_size)(block.count, block.type, part->comm, &most);
    if (error != MPI_SUCCESS) return error;
    char *packed = (size_t)most > bytes ? malloc((size_t)most) : to;
    if (!packed) return MPI_ERR_NO_MEM;
    error = PACKING(Pack)(block.at, block.count, block.type, packed, (size_t)most > bytes ? most : (packed_count)bytes, &at, part->comm);
    if (packed != to) {
        memcpy(to, packed, (size_t)at < bytes ? (size_t)at : bytes);
        free(packed);
    }
    if (block.own) PMPI_Type_free(&block.type);
    if (error == MPI_SUCCESS && (size_t)at != bytes) error = MPI_ERR_TYPE;
    return error;
}

/* Describes the blocks of a buffer. Returns an error of MPI. `reads`: whether the blocks have data already. */
static int describe(struct side *side, struct part *part, const struct buffer *of, int blocks, int reads) {
    size_t words = of->varied ? 2 * (size_t)blocks * sizeof(size_t) : 0, all = 0;
    int error = MPI_SUCCESS;
    side->base = of->at;
    side->blocks = blocks;
    side->of = *of;
    if (!of->varied) {
        size_t size = plain(of->type);
        side->packed = !size;
        side->bytes = (size_t)of->count * (size ? size : bytes_of(of->type));
        if (size) return MPI_SUCCESS;
    }
    for (int i = 0; of->varied && i < blocks; i++) side->packed |= !plain(type_at(of, i));
    for (int i = 0; side->packed && i < blocks; i++) all += (size_t)count_at(of, i) * bytes_of(type_at(of, i));
    side->room = malloc(words + all + 1);
    if (!side->room) return MPI_ERR_NO_MEM;
    if (of->varied) {
        side->counts = side->room;
        side->places = side->counts + blocks;
    }
    if (!side->packed) {
        lay(side);
        return MPI_SUCCESS;
    }
    side->base = (char *)side->room + words;
    all = 0;
    for (int i = 0; i < blocks; i++) {
        size_t bytes = (size_t)count_at(of, i) * bytes_of(type_at(of, i));
        if (sizeof(packed_count) < sizeof(size_t) && (bytes > INT_MAX || count_at(of, i) > INT_MAX)) return MPI_ERR_COUNT;
        if (of->varied) {
            side->counts[i] = bytes;
            side->places[i] = all;
        }
        if (reads && bytes > 0 && (error = pack(side, part, i, side->base + all, bytes)) != MPI_SUCCESS) return error;
        all += bytes;
    }
    return MPI_SUCCESS;
}

/* Brings packed blocks to the program's buffer. */
static int deliver(const struct side *side, struct part *part) {
    char *at = side->base;
    int error = MPI_SUCCESS;
    for (int i = 0; side->packed && i < side->blocks && error == MPI_SUCCESS; i++) {
        packed_count position = 0;
        size_t bytes = (size_t)count_at(&side->of, i) * bytes_of(type_at(&side->of, i));
        struct block block;
        if (bytes == 0) continue;
        error = block_at(&side->of, i, &block);
        if (error == MPI_SUCCESS)
            error = PACKING(Unpack)(at, (packed_count)bytes, &position, block.at, block.count, block.type, part->comm);
        if (block.own) PMPI_Type_free(&block.type);
        at += bytes;
    }
    return error;
}

/* This rank's block of another side, or all of its blocks: not packed, delivered and freed a second time. */
static struct side borrowed(const struct side *from, int block) {
    struct side side = *from;
    side.room = NULL;
    side.packed = 0;
    if (block < 0) return side;
    side.base += from->counts ? from->places[block] : from->bytes * (size_t)block;
    side.bytes = from->counts ? from->counts[block] : from->bytes;
    side.counts = side.places = NULL;
    return side;
}

static const size_t *counts_of(const struct side *side) { return side->counts ? side->counts : &side->bytes; }

/* ---- The calls */

/* Ends a call that moved data. An error before the call leaves the other ranks waiting, as in MPI: then the handler ends them. */
static int moved(struct part *part, struct side *from, struct side *to, int error, int code) {
    if (error == MPI_SUCCESS && code == TRIMTAB_OK) error = deliver(to, part);
    if (from) free(from->room);
    free(to->room);
    if (code != TRIMTAB_OK) return ended(part, code);
    part->by_team++;
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(part->comm, error);
    return error;
}

int wait_for_all(struct part *part) { return ended(part, trimtab_barrier(part->team)); }

int broadcast(struct part *part, struct buffer buffer, int root) {
    struct side side = {0};
    int code = TRIMTAB_OK;
    if (UNLIKELY(no_rank(part, root) || invalid(&buffer, 1))) return leave_to_mpi(part);
    /* The same at both ranks, whatever types they name. */
    if (part->size == 2 && (size_t)buffer.count * bytes_of(buffer.type) >= PAIR_BROADCAST_MOST) return leave_to_mpi(part);
    int error = describe(&side, part, &buffer, 1, part->rank == root);
    if (error == MPI_SUCCESS) code = trimtab_broadcast(part->team, side.base, side.bytes, TRIMTAB_U8, (uint32_t)root, TRIMTAB_MINE);
    return moved(part, NULL, &side, error, code);
}

/* Moves blocks that all have the same size, or blocks with sizes and places of their own. */
static int carry(struct part *part, uint32_t kind, const struct side *in, const struct side *out, int varied, int root) {
    if (varied) {
        struct trimtab_varied call = {sizeof call, kind, TRIMTAB_U8, TRIMTAB_MINE, (uint32_t)root, in->base, counts_of(in), in->places,
                                      out->base, counts_of(out), out->places};
        return trimtab_call_varied(part->team, &call);
    }
    size_t bytes = kind == TRIMTAB_SCATTER || kind == TRIMTAB_ALLTOALL ? out->bytes : in->bytes;
    struct trimtab_collective call = trimtab_collective_of(kind, in->base, out->base, bytes, TRIMTAB_U8, 0, (uint32_t)root, TRIMTAB_MINE);
    return trimtab_call(part->team, &call);
}

int move(struct part *part, uint32_t kind, struct buffer from, struct buffer to, int root) {
    struct side in = {0}, out = {0};
    int all = part->size, at_root = part->rank == root, error = MPI_SUCCESS, code = TRIMTAB_OK;
    int gives = kind == TRIMTAB_SCATTER ? (at_root ? all : 0) : kind == TRIMTAB_ALLTOALL ? all : 1;
    int gets = kind == TRIMTAB_GATHER ? (at_root ? all : 0) : kind == TRIMTAB_SCATTER ? 1 : all;
    /* In place, one side is the other one, or this rank's block of it. */
    int from_there = from.at == MPI_IN_PLACE && kind != TRIMTAB_SCATTER && (kind != TRIMTAB_GATHER || at_root);
    int to_there = to.at == MPI_IN_PLACE && kind == TRIMTAB_SCATTER && at_root;
    if (UNLIKELY(no_rank(part, root) || (gives && !from_there && invalid(&from, gives)) || (gets && !to_there && invalid(&to, gets))))
        return leave_to_mpi(part);
    if (gives && !from_there) error = describe(&in, part, &from, gives, 1);
    if (error == MPI_SUCCESS && gets && !to_there) error = describe(&out, part, &to, gets, from_there);
    if (from_there) in = borrowed(&out, kind == TRIMTAB_ALLTOALL ? -1 : part->rank);
    if (to_there) out = borrowed(&in, part->rank);
    int varied = from.varied || to.varied;
    /* A rank whose blocks for itself differ in size; with arrays the team compares all sizes. */
    if (error == MPI_SUCCESS && !varied && gives && gets && in.bytes != out.bytes) error = MPI_ERR_TRUNCATE;
    if (error == MPI_SUCCESS) code = carry(part, kind, &in, &out, varied, root);
    return moved(part, &in, &out, error, code);
}

int combine(struct part *part, uint32_t kind, const void *from, void *to, MPI_Count count, MPI_Datatype type, MPI_Op op, int root) {
    struct combined as;
    int gets = kind != TRIMTAB_REDUCE || part->rank == root;
    if (UNLIKELY(count < 0 || no_rank(part, root) || (from == MPI_IN_PLACE && !gets) || (to == MPI_IN_PLACE && gets) || !combined_of(type, op, &as)))
        return leave_to_mpi(part);
    struct trimtab_collective call =
        trimtab_collective_of(kind, from == MPI_IN_PLACE ? to : from, gets ? to : NULL, (size_t)count * (size_t)as.times, (uint32_t)as.type,
                              as.operation, (uint32_t)root, TRIMTAB_MINE);
    call.own = as.own;
    return ended(part, trimtab_call(part->team, &call));
}
