/* Compares each collective that libtrimtab_mpi takes over with the MPI underneath (PMPI_), and tries what a drop-in must not break.
 *
 *     test_mpi same SEED ROUNDS    random calls; all ranks draw the same
 *     test_mpi mixed               ranks that name the same data by different types
 *     test_mpi sends               a large message under way during a barrier
 *     test_mpi errors              invalid arguments, user operators, intercommunicators
 *     test_mpi many                many communicators
 *     test_mpi late                a rank that comes 5 ms after the others to 20 barriers
 *     test_mpi early               ranks that finalize as soon as they may
 *     test_mpi dies                a rank is killed while the others wait in a collective
 *     test_mpi serialized          threads that call one after the other
 *     test_mpi multiple            threads that call at the same time, each in a communicator of its own */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int world_rank, world_size;

#define IS(what) ((what) ? (void)0 : wrong(#what, __LINE__))
#define OK(call) IS((call) == MPI_SUCCESS)

static void wrong(const char *what, int line) {
    fprintf(stderr, "rank %d, line %d: %s\n", world_rank, line, what);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static uint64_t state;
static uint64_t draw(void) {
    uint64_t x = (state += 0x9e3779b97f4a7c15ull);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}
static int below(int bound) { return (int)(draw() % (uint64_t)bound); }

/* ---- Random calls */

enum { MOST = 40000 }; /* elements of a block */

static const char *const names[] = {"barrier", "bcast",   "reduce",     "allreduce", "scan",     "reduce_scatter_block", "reduce_scatter", "gather",
                                    "allgather", "scatter", "alltoall", "gatherv",   "allgatherv", "scatterv",             "alltoallv",      "alltoallw",
                                    "exscan"};
enum { BCAST = 1, REDUCE, REDUCE_SCATTER_BLOCK = 5, REDUCE_SCATTER, GATHERV = 11, ALLTOALLV = 14, ALLTOALLW, EXSCAN, KINDS };

struct drawn {
    MPI_Datatype type;
    MPI_Op op;
    int count, root, in_place;
    int large; /* by the function with large counts, if there is one */
};

static int combines(int kind) { return (kind >= REDUCE && kind <= REDUCE_SCATTER) || kind == EXSCAN; }
static int varied(int kind) { return kind >= GATHERV && kind <= ALLTOALLW; }

/* Fills a buffer so that sums and products of few ranks are exact in every order. */
static void fill(void *buffer, size_t elements, MPI_Datatype type, int rank, int small) {
    int bytes;
    MPI_Type_size(type, &bytes);
    for (size_t i = 0; i < elements; i++) {
        uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
        x ^= x >> 31;
        /* Open MPI with AVX saturates sums of short integers. */
        int value = small || bytes == 1 ? (int)(x % 3) : (int)(x % 100);
        if (type == MPI_DOUBLE || type == MPI_C_DOUBLE_COMPLEX)
            for (int part = 0; part < bytes / 8; part++) ((double *)buffer)[i * (size_t)(bytes / 8) + (size_t)part] = value + part;
        else if (type == MPI_FLOAT) ((float *)buffer)[i] = (float)value;
        else if (type == MPI_DOUBLE_INT) {
            struct pair {
                double value;
                int at;
            } *pair = (struct pair *)buffer + i;
            memset(pair, 0, sizeof *pair);
            pair->value = value;
            pair->at = rank;
        } else if (bytes == 8) ((int64_t *)buffer)[i] = value;
        else if (bytes == 4) ((int32_t *)buffer)[i] = value;
        else if (bytes == 2) ((int16_t *)buffer)[i] = (int16_t)value;
        else ((char *)buffer)[i] = (char)value;
    }
}

static size_t extent_of(MPI_Datatype type) {
    MPI_Aint begin, extent;
    OK(MPI_Type_get_extent(type, &begin, &extent));
    return (size_t)extent;
}

static int counts[64], places[64], to_counts[64], to_places[64];

static int size_of(int from, int to, int most, int round) {
    uint64_t x = ((uint64_t)from * 977 + (uint64_t)to * 131 + (uint64_t)round * 7919) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 33;
    return x % 5 == 0 ? 0 : (int)(x % (uint64_t)(most + 1));
}

/* Blocks of different sizes, in reverse order and with gaps. Returns the elements of the whole. */
static int lay(int *of, int *at, int ranks) {
    int end = 0;
    for (int r = ranks - 1; r >= 0; r--) {
        at[r] = end;
        end += of[r] + 1;
    }
    return end;
}

#define BOTH(name, ...) (own ? MPI_##name(__VA_ARGS__) : PMPI_##name(__VA_ARGS__))

/* One call by the functions that are taken over (`own`), or by MPI's. */
static void call(int own, int kind, const struct drawn *d, const void *in, void *out, int me, int ranks, MPI_Comm comm) {
    const void *from = d->in_place ? MPI_IN_PLACE : in;
    int n = d->count, root = d->root, at_root = me == root, alike[64];
    MPI_Datatype t = d->type, types[64];
    int bytes_places[64], bytes_to_places[64];
    for (int i = 0; i < ranks; i++) {
        alike[i] = n;
        types[i] = t;
        bytes_places[i] = places[i] * (int)extent_of(t);
        bytes_to_places[i] = to_places[i] * (int)extent_of(t);
    }
    switch (kind) {
    case 0: OK(BOTH(Barrier, comm)); break;
    case 1: OK(BOTH(Bcast, out, n, t, root, comm)); break;
    /* MPICH 4.0 fails in its own reduce in place, so the reference is not in place: the data is the same. */
    case 2: OK(BOTH(Reduce, at_root && own ? from : in, at_root ? out : NULL, n, t, d->op, root, comm)); break;
    case 3: OK(BOTH(Allreduce, from, out, n, t, d->op, comm)); break;
    case 4: OK(BOTH(Scan, from, out, n, t, d->op, comm)); break;
    case 5: OK(BOTH(Reduce_scatter_block, from, out, n, t, d->op, comm)); break;
    case 6:
        if (n % 2) alike[0] = n - 1; /* unequal blocks */
        OK(BOTH(Reduce_scatter, from, out, alike, t, d->op, comm));
        break;
    case 7: OK(BOTH(Gather, at_root ? from : in, n, t, out, n, t, root, comm)); break;
    case 8: OK(BOTH(Allgather, from, n, t, out, n, t, comm)); break;
    case 9: OK(BOTH(Scatter, in, n, t, at_root && d->in_place ? MPI_IN_PLACE : out, n, t, root, comm)); break;
    case 10: OK(BOTH(Alltoall, from, n, t, out, n, t, comm)); break;
    case 11: OK(BOTH(Gatherv, at_root ? from : in, counts[me], t, out, counts, places, t, root, comm)); break;
    case 12: OK(BOTH(Allgatherv, from, counts[me], t, out, counts, places, t, comm)); break;
    case 13: OK(BOTH(Scatterv, in, counts, places, t, at_root && d->in_place ? MPI_IN_PLACE : out, counts[me], t, root, comm)); break;
    case 14: OK(BOTH(Alltoallv, from, counts, places, t, out, to_counts, to_places, t, comm)); break;
    case 15: OK(BOTH(Alltoallw, from, counts, bytes_places, types, out, to_counts, bytes_to_places, types, comm)); break;
    case 16: OK(BOTH(Exscan, from, out, n, t, d->op, comm)); break;
    }
}

#if MPI_VERSION >= 4
/* The same call by the functions with large counts. */
static void call_large(int kind, const struct drawn *d, const void *in, void *out, int me, int ranks, MPI_Comm comm) {
    const void *from = d->in_place ? MPI_IN_PLACE : in, *from_root = me == d->root ? from : in;
    void *to_root = me == d->root && d->in_place ? MPI_IN_PLACE : out;
    MPI_Count n = d->count, alike[64], given[64], got[64];
    MPI_Aint at[64], to_at[64], bytes_at[64], bytes_to_at[64];
    MPI_Datatype t = d->type, types[64];
    int root = d->root;
    for (int i = 0; i < ranks; i++) {
        alike[i] = n;
        types[i] = t;
        given[i] = counts[i];
        got[i] = to_counts[i];
        at[i] = places[i];
        to_at[i] = to_places[i];
        bytes_at[i] = at[i] * (MPI_Aint)extent_of(t);
        bytes_to_at[i] = to_at[i] * (MPI_Aint)extent_of(t);
    }
    if (n % 2) alike[0] = n - 1;
    switch (kind) {
    case 0: OK(MPI_Barrier(comm)); break;
    case 1: OK(MPI_Bcast_c(out, n, t, root, comm)); break;
    case 2: OK(MPI_Reduce_c(from_root, me == root ? out : NULL, n, t, d->op, root, comm)); break;
    case 3: OK(MPI_Allreduce_c(from, out, n, t, d->op, comm)); break;
    case 4: OK(MPI_Scan_c(from, out, n, t, d->op, comm)); break;
    case 5: OK(MPI_Reduce_scatter_block_c(from, out, n, t, d->op, comm)); break;
    case 6: OK(MPI_Reduce_scatter_c(from, out, alike, t, d->op, comm)); break;
    case 7: OK(MPI_Gather_c(from_root, n, t, out, n, t, root, comm)); break;
    case 8: OK(MPI_Allgather_c(from, n, t, out, n, t, comm)); break;
    case 9: OK(MPI_Scatter_c(in, n, t, to_root, n, t, root, comm)); break;
    case 10: OK(MPI_Alltoall_c(from, n, t, out, n, t, comm)); break;
    case 11: OK(MPI_Gatherv_c(from_root, given[me], t, out, given, at, t, root, comm)); break;
    case 12: OK(MPI_Allgatherv_c(from, given[me], t, out, given, at, t, comm)); break;
    case 13: OK(MPI_Scatterv_c(in, given, at, t, to_root, given[me], t, root, comm)); break;
    case 14: OK(MPI_Alltoallv_c(from, given, at, t, out, got, to_at, t, comm)); break;
    case 15: OK(MPI_Alltoallw_c(from, given, bytes_at, types, out, got, bytes_to_at, types, comm)); break;
    case 16: OK(MPI_Exscan_c(from, out, n, t, d->op, comm)); break;
    }
}
#else
static void call_large(int kind, const struct drawn *d, const void *in, void *out, int me, int ranks, MPI_Comm comm) {
    call(1, kind, d, in, out, me, ranks, comm);
}
#endif

static int logical(MPI_Op op) { return op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR; }

static void draw_type(struct drawn *d, int kind) {
    const MPI_Datatype all[] = {MPI_DOUBLE, MPI_INT, MPI_FLOAT, MPI_LONG, MPI_INT16_T, MPI_UINT8_T, MPI_UNSIGNED, MPI_C_DOUBLE_COMPLEX, MPI_DOUBLE_INT, MPI_CHAR, MPI_BYTE};
    const MPI_Op ints[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
    d->op = MPI_SUM;
    /* MPICH 4.0 fails in its own scatter and alltoallv of such pairs. */
    do d->type = all[below(combines(kind) ? 9 : 11)];
    while (d->type == MPI_DOUBLE_INT && !combines(kind));
    if (d->type == MPI_DOUBLE_INT) d->op = below(2) ? MPI_MAXLOC : MPI_MINLOC;
    else if (d->type == MPI_DOUBLE || d->type == MPI_FLOAT) d->op = ints[below(4)];
    else if (d->type != MPI_C_DOUBLE_COMPLEX) d->op = ints[below(10)];
}

static void same(int rounds) {
    MPI_Comm comms[4];
    size_t bytes = ((size_t)MOST + 4) * 16 * (size_t)world_size;
    char *in = malloc(bytes), *kept = malloc(bytes), *ours = malloc(bytes), *mpis = malloc(bytes);
    IS(in && kept && ours && mpis);
    comms[0] = MPI_COMM_WORLD;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comms[2]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[3]));
    for (int round = 0; round < rounds; round++) {
        static const int sizes[] = {0, 1, 2, 7, 63, 500, 2049, 9000, MOST};
        MPI_Comm comm = comms[below(4)];
        int kind = below(KINDS), me, ranks, v = varied(kind), pairs = kind == ALLTOALLV || kind == ALLTOALLW;
        struct drawn d;
        OK(MPI_Comm_rank(comm, &me));
        OK(MPI_Comm_size(comm, &ranks));
        draw_type(&d, kind);
        d.count = sizes[below(9)];
        d.in_place = below(3) == 0;
        d.large = below(2);
        if (kind == REDUCE && (ranks == 1 || d.op == MPI_MAXLOC || d.op == MPI_MINLOC)) d.in_place = 0;
        d.root = below(world_size) % ranks;
        for (int r = 0; v && r < ranks; r++) {
            int lesser = r < me ? r : me, greater = r < me ? me : r, symmetric = d.in_place && pairs;
            counts[r] = pairs ? size_of(symmetric ? lesser : me, symmetric ? greater : r, d.count, round) : size_of(r, 0, d.count, round);
            to_counts[r] = pairs ? size_of(symmetric ? lesser : r, symmetric ? greater : me, d.count, round) : counts[r];
        }
        lay(counts, places, ranks);
        lay(to_counts, to_places, ranks);
        size_t all = ((size_t)d.count + 4) * (size_t)ranks, used = all * extent_of(d.type);
        fill(in, all, d.type, me, d.op == MPI_PROD || logical(d.op));
        memset(ours, 0x5a, used);
        if (d.in_place || kind == BCAST) {
            fill(ours, all, d.type, me, d.op == MPI_PROD || logical(d.op));
        }
        memcpy(mpis, ours, used);
        memcpy(kept, in, used);
        if (d.large) call_large(kind, &d, in, ours, me, ranks, comm);
        else call(1, kind, &d, in, ours, me, ranks, comm);
        call(0, kind, &d, kept, mpis, me, ranks, comm);
        /* What lies behind the result of a reduce_scatter in place has no meaning. */
        int scatters = kind == REDUCE_SCATTER_BLOCK || kind == REDUCE_SCATTER;
        size_t compared = d.in_place && scatters ? (size_t)(d.count > 0 ? d.count - (kind == REDUCE_SCATTER && d.count % 2) : 0) * extent_of(d.type) : used;
        if (d.in_place && kind == REDUCE && me != d.root) compared = 0;
        if (kind == EXSCAN && me == 0) compared = 0;
        if (memcmp(ours, mpis, compared) || memcmp(in, kept, used)) {
            char text[300], name[MPI_MAX_OBJECT_NAME];
            int length;
            size_t at = 0;
            while (at < compared && ours[at] == mpis[at]) at++;
            MPI_Type_get_name(d.type, name, &length);
            snprintf(text, sizeof text, "round %d: %s of %d %s differs, root %d, in place %d, %d ranks, byte %zu of %zu: %d and %d", round,
                     names[kind], d.count, name, d.root, d.in_place, ranks, at, compared, at < compared ? ours[at] : 0,
                     at < compared ? mpis[at] : 0);
            wrong(text, __LINE__);
        }
    }
    for (int c = 1; c < 4; c++) OK(MPI_Comm_free(&comms[c]));
    free(in);
    free(kept);
    free(ours);
    free(mpis);
}

/* ---- Different types for the same data */

static void mixed(void) {
    MPI_Datatype column, pairs;
    enum { N = 300 };
    int grid[N][2], line[2 * N], me = world_rank, all = world_size;
    /* Every second integer, and pairs that lie in reverse order. */
    OK(MPI_Type_vector(N, 1, 2, MPI_INT, &column));
    OK(MPI_Type_commit(&column));
    int lengths[2] = {1, 1}, at[2] = {1, 0};
    OK(MPI_Type_indexed(2, lengths, at, MPI_INT, &pairs));
    OK(MPI_Type_commit(&pairs));
    for (int round = 0; round < 40; round++) {
        int root = round % all;
        memset(grid, 0, sizeof grid);
        for (int i = 0; i < N; i++) line[i] = me == root ? i + round : -1;
        for (int i = 0; me == root && i < N; i++) grid[i][0] = i + round;
        /* Even ranks have a line, odd ranks a column. */
        if (me % 2) OK(MPI_Bcast(grid, 1, column, root, MPI_COMM_WORLD));
        else OK(MPI_Bcast(line, N, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < N; i++) IS((me % 2 ? grid[i][0] : line[i]) == i + round);
        for (int i = 0; me % 2 && i < N; i++) IS(grid[i][1] == 0);
        /* A gather of columns to lines, and a scatter of pairs. */
        int *lines = malloc(sizeof(int) * N * (size_t)all), two[2];
        for (int i = 0; i < N; i++) grid[i][0] = me * 1000 + i;
        OK(MPI_Gather(grid, 1, column, lines, N, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; me == root && i < N * all; i++) IS(lines[i] == i / N * 1000 + i % N);
        for (int i = 0; i < 2 * all; i++) lines[i] = i;
        OK(MPI_Scatter(lines, 1, pairs, two, 2, MPI_INT, root, MPI_COMM_WORLD));
        IS(two[0] == 2 * me + 1 && two[1] == 2 * me);
        /* Blocks of different sizes of a derived type, and in place. */
        int of[64], to[64], ends = 0;
        for (int r = 0; r < all; r++) {
            of[r] = (r + round) % 4;
            to[r] = ends;
            ends += of[r];
        }
        int *whole = malloc(sizeof(int) * 2 * (size_t)(ends + 1));
        for (int i = 0; i < 2 * of[me]; i++) whole[2 * to[me] + i] = me * 100 + i;
        OK(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, of, to, pairs, MPI_COMM_WORLD));
        for (int r = 0; r < all; r++)
            for (int i = 0; i < 2 * of[r]; i++) IS(whole[2 * to[r] + i] == r * 100 + i);
        free(lines);
        free(whole);
    }
    /* Data named by its address alone. */
    MPI_Aint address;
    MPI_Datatype there;
    int one = 1, value = me == 0 ? 77 : -1;
    OK(MPI_Get_address(&value, &address));
    OK(MPI_Type_create_hindexed(1, &one, &address, MPI_INT, &there));
    OK(MPI_Type_commit(&there));
    OK(MPI_Bcast(MPI_BOTTOM, 1, there, 0, MPI_COMM_WORLD));
    IS(value == 77);
    OK(MPI_Type_free(&there));
    OK(MPI_Type_free(&column));
    OK(MPI_Type_free(&pairs));
}

/* ---- Progress */

static void sends(void) {
    enum { LONG = 1 << 20 };
    int *data = calloc(LONG, sizeof *data), sum, last = world_size - 1;
    IS(data);
    for (int round = 0; round < 3 && world_size > 1; round++) {
        if (world_rank == 0) {
            MPI_Request sent;
            for (int i = 0; i < LONG; i++) data[i] = i + round;
            OK(MPI_Isend(data, LONG, MPI_INT, last, 7, MPI_COMM_WORLD, &sent));
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
        } else {
            if (world_rank == last) {
                OK(MPI_Recv(data, LONG, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                for (int i = 0; i < LONG; i++) IS(data[i] == i + round);
            }
            OK(MPI_Barrier(MPI_COMM_WORLD));
        }
    }
    sum = world_rank;
    OK(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    IS(sum == world_size * last / 2);
    free(data);
}

/* ---- What stays with MPI */

static void twice(void *from, void *into, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)into)[i] = 2 * (((int *)into)[i] + ((int *)from)[i]);
}

static void errors(void) {
    MPI_Comm comm, half, inter;
    MPI_Op own;
    int value = 1, sum = 0, class, error, color = world_rank % 2;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int i = 0; i < 3; i++) OK(MPI_Barrier(comm));
    error = MPI_Bcast(&value, -1, MPI_INT, 0, comm);
    OK(MPI_Error_class(error, &class));
    IS(class == MPI_ERR_COUNT);
    error = MPI_Bcast(&value, 1, MPI_INT, world_size, comm);
    OK(MPI_Error_class(error, &class));
    IS(class == MPI_ERR_ROOT);
    error = MPI_Bcast(&value, 1, MPI_DATATYPE_NULL, 0, comm);
    OK(MPI_Error_class(error, &class));
    IS(class == MPI_ERR_TYPE);
    error = MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_BAND, comm);
    OK(MPI_Error_class(error, &class));
    IS(class == MPI_ERR_OP);
    /* Blocks of different sizes, that this rank could have known. */
    error = MPI_Allgather(&value, 1, MPI_INT, counts, 2, MPI_INT, comm);
    IS(world_size == 1 || error != MPI_SUCCESS);
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm));
    IS(sum == world_size);
    OK(MPI_Op_create(twice, 1, &own));
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, own, comm));
    IS(sum > 0);
    OK(MPI_Op_free(&own));
    OK(MPI_Barrier(MPI_COMM_SELF));
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    IS(sum == 1);
    OK(MPI_Allreduce(MPI_IN_PLACE, &sum, 0, MPI_INT, MPI_SUM, comm));
    OK(MPI_Bcast(NULL, 0, MPI_INT, 0, comm));
    OK(MPI_Reduce(&value, world_rank ? NULL : &sum, 1, MPI_INT, MPI_SUM, 0, comm));
    OK(MPI_Gather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, 0, comm));
    if (world_size > 1) {
        OK(MPI_Comm_split(comm, color, 0, &half));
        OK(MPI_Intercomm_create(half, 0, comm, 1 - color, 5, &inter));
        for (int i = 0; i < 4; i++) {
            OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter));
            IS(sum == (color ? (world_size + 1) / 2 : world_size / 2));
            OK(MPI_Barrier(inter));
            OK(MPI_Barrier(half));
        }
        OK(MPI_Comm_free(&inter));
        OK(MPI_Comm_free(&half));
    }
    OK(MPI_Comm_free(&comm));
}

static void many(void) {
    for (int i = 0; i < 40; i++) {
        MPI_Comm comm, kept[2];
        int sum, one = 1, all;
        OK(MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? 0 : world_rank % 2, world_rank, &comm));
        OK(MPI_Comm_size(comm, &all));
        for (int c = 0; c < 3; c++) {
            OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
            IS(sum == all);
        }
        if (i % 20 == 0) {
            /* Alive at the same time. */
            for (int k = 0; k < 2; k++) OK(MPI_Comm_dup(comm, &kept[k]));
            for (int c = 0; c < 6; c++) OK(MPI_Barrier(kept[c % 2]));
            for (int k = 0; k < 2; k++) OK(MPI_Comm_free(&kept[k]));
        }
        OK(MPI_Comm_free(&comm));
    }
}

static void late(void) {
    for (int i = 0; i < 20; i++) {
        if (world_rank == 0) usleep(5000);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
}

static void early(void) {
    int value = world_rank, sum = -1;
    for (int i = 0; i < 4; i++) OK(MPI_Barrier(MPI_COMM_WORLD));
    /* The others may be over long before the root comes. */
    if (world_rank == 0) usleep(100000);
    OK(MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    IS(world_rank || sum == world_size * (world_size - 1) / 2);
}

static void dies(void) {
    for (int i = 0; i < 4; i++) OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == world_size - 1) {
        usleep(100000);
        kill(getpid(), SIGKILL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    fprintf(stderr, "rank %d: a barrier without the last rank returned\n", world_rank);
}

/* ---- Threads */

enum { THREADS = 3, CALLS = 150 };
static MPI_Comm of_thread[THREADS];
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn;

/* A few collectives with known results. */
static void known(MPI_Comm comm, int round) {
    int root = round % world_size, value = world_rank == root ? round : -1, sum, all[64];
    double half = world_rank * 0.5, total;
    OK(MPI_Bcast(&value, 1, MPI_INT, root, comm));
    IS(value == round);
    OK(MPI_Allreduce(&half, &total, 1, MPI_DOUBLE, MPI_SUM, comm));
    IS(total == world_size * (world_size - 1) / 4.0);
    value = world_rank + round;
    OK(MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, comm));
    for (int r = 0; r < world_size; r++) IS(all[r] == r + round);
    OK(MPI_Exscan(&value, &sum, 1, MPI_INT, MPI_SUM, comm));
    IS(world_rank == 0 || sum == world_rank * (world_rank - 1) / 2 + world_rank * round);
}

/* Calls in the communicator of this thread while other threads do so, and messages to itself and the next rank. */
static void *at_once(void *number) {
    int thread = (int)(intptr_t)number, next = (world_rank + 1) % world_size, before = (world_rank + world_size - 1) % world_size;
    static __thread int out[5000], in[5000];
    for (int round = 0; round < CALLS; round++) {
        known(of_thread[thread], round);
        if (round % 10) continue;
        for (int i = 0; i < 5000; i++) out[i] = thread * 100000 + world_rank * 10000 + i;
        OK(MPI_Sendrecv(out, 5000, MPI_INT, next, thread, in, 5000, MPI_INT, before, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 5000; i++) IS(in[i] == thread * 100000 + before * 10000 + i);
    }
    return NULL;
}

/* Every thread calls in its turn, and so in each communicator. */
static void *in_turn(void *number) {
    int thread = (int)(intptr_t)number;
    for (int round = thread; round < CALLS; round += THREADS) {
        pthread_mutex_lock(&turn_lock);
        while (turn != round) pthread_cond_wait(&turn_changed, &turn_lock);
        known(of_thread[round / 2 % THREADS], round);
        turn = round + 1;
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&turn_lock);
    }
    return NULL;
}

static void threads(void *(*work)(void *)) {
    pthread_t all[THREADS];
    for (int t = 0; t < THREADS; t++) OK(MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[t]));
    for (intptr_t t = 0; t < THREADS; t++) IS(pthread_create(&all[t], NULL, work, (void *)t) == 0);
    for (int t = 0; t < THREADS; t++) IS(pthread_join(all[t], NULL) == 0);
    /* The threads that made the teams have ended: the teams stay, also when ranks wait long enough to look for those that died. */
    for (int round = 0; round < 6; round++) {
        known(of_thread[round % THREADS], round);
        if (world_rank == 0) usleep(60000);
    }
    for (int t = 0; t < THREADS; t++) OK(MPI_Comm_free(&of_thread[t]));
}

int main(int count, char **words) {
    int level = MPI_THREAD_SINGLE, given;
    if (count > 1 && !strcmp(words[1], "serialized")) level = MPI_THREAD_SERIALIZED;
    if (count > 1 && !strcmp(words[1], "multiple")) level = MPI_THREAD_MULTIPLE;
    if (level == MPI_THREAD_SINGLE) OK(MPI_Init(&count, &words));
    else OK(MPI_Init_thread(&count, &words, level, &given));
    IS(level == MPI_THREAD_SINGLE || given >= level);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "same") && count == 4) {
        state = strtoull(words[2], NULL, 10);
        same(atoi(words[3]));
    } else if (!strcmp(what, "mixed")) mixed();
    else if (!strcmp(what, "sends")) sends();
    else if (!strcmp(what, "errors")) errors();
    else if (!strcmp(what, "many")) many();
    else if (!strcmp(what, "late")) late();
    else if (!strcmp(what, "early")) early();
    else if (!strcmp(what, "dies")) dies();
    else if (!strcmp(what, "serialized")) threads(in_turn);
    else if (!strcmp(what, "multiple")) threads(at_once);
    else wrong("an argument as in the first lines of test_mpi.c", __LINE__);
    OK(MPI_Finalize());
    return 0;
}
