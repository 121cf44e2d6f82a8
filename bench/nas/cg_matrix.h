/*
 * The test matrix of NAS kernel CG.
 */
#ifndef BENCH_NAS_CG_MATRIX_H
#define BENCH_NAS_CG_MATRIX_H

#include <stdint.h>

/*
 * A square sparse matrix in compressed row storage: row j has the elements
 * value[k] in columns column[k], ascending, for
 * row_start[j] <= k < row_start[j + 1].
 */
struct csr_matrix {
    int32_t n;
    int64_t *row_start;
    int32_t *column;
    double *value;
};

/*
 * Makes the matrix of order n whose generating vectors have nonzer random
 * elements each, less shift times the identity.  Every row is first
 * written by the thread to which schedule(static) over the n rows gives it.
 */
struct csr_matrix make_cg_matrix(int32_t n, int32_t nonzer, double shift);

#endif
