/* Types that lie plainly in memory, and types and operators that a team combines. */
#include "trimtab_mpi.h"

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

int combined_of(MPI_Datatype type, MPI_Op op, struct combined *to) {
    struct number number = number_of(type);
    int floats = number.type == TRIMTAB_F32 || number.type == TRIMTAB_F64, logical = -1;
    to->type = number.type;
    to->times = number.times;
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

size_t plain(MPI_Datatype type) {
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
