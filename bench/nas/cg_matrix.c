/*
 * The test matrix of NAS kernel CG.
 *
 * Problem.  Make the symmetric sparse matrix
 *
 *     A = sum over i of w[i] x[i] x[i]^T  +  (rcond - shift) I,
 *
 * where each x[i] is a sparse vector with nonzer random elements in random
 * positions, except that element i of x[i] is always there and is 1/2, and
 * the weights w[i] fall geometrically from 1 towards rcond.  Without the shift
 * the matrix is positive definite, its smallest eigenvalue at least rcond.
 *
 * Method.  The vectors come from one random stream in which rejected draws
 * make the position of a vector unpredictable, so one thread draws them all;
 * that is a small part of the work.  Row j of A is the sum of
 * w[i] x[i][j] x[i]^T over those i whose x[i] has an element j.  Lists of these
 * i are made first, then each thread forms its own rows one after another in a
 * dense accumulator (Gustavson's row-by-row scheme): once to count the
 * elements, so that every row's place in the compressed storage is known, and
 * once more to store them.  The terms of a row are always added in the order of
 * i, so the matrix is the same, to the last bit, for any number of threads.
 *
 * Memory.  Passes over rows use schedule(static), as does the solver, and the
 * storing pass is the first to write value[] and column[] (the counting pass
 * row_start[]).  So each row lies on the NUMA node of the thread that will
 * multiply by it.  Work space is given back to the system, never reused.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel CG (there routine makea).
 */
#include "nas/cg_matrix.h"

#include "common/memory.h"
#include "common/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define SEED UINT64_C(314159265)
#define RCOND 0.1

/* ---- The generating vectors --------------------------------------------- */

/*
 * The vectors x[i], in slots of equal size: the elements of x[i] are at
 * index[k], element[k] for i * slot <= k < i * slot + length[i].
 */
struct vectors {
    int32_t n;
    int32_t slot;
    int32_t *length;
    int32_t *index;
    double *element;
    double *weight; /* w[i] */
};

static struct vectors allocate_vectors(int32_t n, int32_t slot)
{
    const size_t count = (size_t)n;
    const size_t elements = count * (size_t)slot;
    struct vectors v = {.n = n, .slot = slot};
    v.length = allocate_untouched(count, sizeof *v.length);
    v.index = allocate_untouched(elements, sizeof *v.index);
    v.element = allocate_untouched(elements, sizeof *v.element);
    v.weight = allocate_untouched(count, sizeof *v.weight);
    return v;
}

static void release_vectors(struct vectors *v)
{
    const size_t count = (size_t)v->n;
    const size_t elements = count * (size_t)v->slot;
    release(v->length, count, sizeof *v->length);
    release(v->index, elements, sizeof *v->index);
    release(v->element, elements, sizeof *v->element);
    release(v->weight, count, sizeof *v->weight);
}

/* Position of the value i in index[0..length), or length if it is missing. */
static int32_t find_index(const int32_t *index, int32_t length, int32_t i)
{
    int32_t k = 0;
    while (k < length && index[k] != i)
        k++;
    return k;
}

/*
 * Draws nonzer elements with distinct positions below n.  Each try takes two
 * numbers of the stream, the element and then its position, which is scaled by
 * the power of two not less than n and rejected if it is n or more or taken.
 */
static void draw_vector(uint64_t *seed, int32_t n, int32_t power_of_two, int32_t nonzer,
                        int32_t *index, double *element)
{
    int32_t length = 0;
    while (length < nonzer) {
        const double value = randlc(seed, RANDLC_MULTIPLIER);
        const int32_t i = (int32_t)(power_of_two * randlc(seed, RANDLC_MULTIPLIER));
        if (i < n && find_index(index, length, i) == length) {
            index[length] = i;
            element[length] = value;
            length++;
        }
    }
}

static struct vectors draw_vectors(int32_t n, int32_t nonzer)
{
    struct vectors v = allocate_vectors(n, nonzer + 1);
    const double ratio = pow(RCOND, 1.0 / n);
    double weight = 1.0;
    uint64_t seed = SEED;
    int32_t power_of_two = 2;

    while (power_of_two < n)
        power_of_two *= 2;
    randlc(&seed, RANDLC_MULTIPLIER); /* the specification drops the first number */

    for (int32_t i = 0; i < n; i++) {
        int32_t *index = v.index + (int64_t)i * v.slot;
        double *element = v.element + (int64_t)i * v.slot;

        draw_vector(&seed, n, power_of_two, nonzer, index, element);
        const int32_t diagonal = find_index(index, nonzer, i);
        index[diagonal] = i;
        element[diagonal] = 0.5;
        v.length[i] = diagonal < nonzer ? nonzer : nonzer + 1;
        v.weight[i] = weight;
        weight *= ratio;
    }
    return v;
}

/* ---- Vectors of each row -------------------------------------------------- */

/*
 * For row j, the vectors that have an element j, in ascending order: place[k]
 * for start[j] <= k < start[j + 1] is the position of that element among the
 * vectors' elements.
 */
struct row_lists {
    int64_t *start;
    int64_t *place;
};

/* Replaces the counts in start[1..n] by the beginning and end of each row's part. */
static void accumulate_counts(int64_t *start, int32_t n)
{
    start[0] = 0;
    for (int32_t j = 0; j < n; j++)
        start[j + 1] += start[j];
}

/* A counting sort of all elements of all vectors by their row. */
static struct row_lists list_rows(const struct vectors *v)
{
    const size_t count = (size_t)v->n;
    struct row_lists lists = {.start = allocate_untouched(count + 1, sizeof *lists.start)};

    for (int32_t i = 0; i < v->n; i++)
        for (int32_t k = 0; k < v->length[i]; k++)
            lists.start[v->index[(int64_t)i * v->slot + k] + 1]++;
    accumulate_counts(lists.start, v->n);

    lists.place = allocate_untouched((size_t)lists.start[v->n], sizeof *lists.place);
    int64_t *next = allocate_untouched(count, sizeof *next);
    for (int32_t j = 0; j < v->n; j++)
        next[j] = lists.start[j];
    for (int32_t i = 0; i < v->n; i++)
        for (int32_t k = 0; k < v->length[i]; k++) {
            const int64_t place = (int64_t)i * v->slot + k;
            lists.place[next[v->index[place]]++] = place;
        }
    release(next, count, sizeof *next);
    return lists;
}

static void release_row_lists(struct row_lists *lists, int32_t n)
{
    release(lists->place, (size_t)lists->start[n], sizeof *lists->place);
    release(lists->start, (size_t)n + 1, sizeof *lists->start);
}

/* ---- Forming rows -------------------------------------------------------- */

/*
 * One row being formed: sum[] is dense, and the columns in use are marked and
 * listed, in order of appearance.  Between rows nothing is marked.
 */
struct accumulator {
    double *sum;
    bool *used;
    int32_t *columns;
    int32_t length;
};

static struct accumulator allocate_accumulator(int32_t n)
{
    return (struct accumulator){
        .sum = allocate_untouched((size_t)n, sizeof(double)),
        .used = allocate_untouched((size_t)n, sizeof(bool)),
        .columns = allocate_untouched((size_t)n, sizeof(int32_t)),
    };
}

static void release_accumulator(struct accumulator *row, int32_t n)
{
    release(row->sum, (size_t)n, sizeof *row->sum);
    release(row->used, (size_t)n, sizeof *row->used);
    release(row->columns, (size_t)n, sizeof *row->columns);
}

static void clear_row(struct accumulator *row)
{
    for (int32_t k = 0; k < row->length; k++)
        row->used[row->columns[k]] = false;
    row->length = 0;
}

static void add_element(struct accumulator *row, int32_t column, double value)
{
    if (!row->used[column]) {
        row->used[column] = true;
        row->columns[row->length++] = column;
        row->sum[column] = 0.0;
    }
    row->sum[column] += value;
}

/* Forms row j of the matrix in the cleared accumulator. */
static void form_row(struct accumulator *row, const struct vectors *v,
                     const struct row_lists *lists, int32_t j, double shift)
{
    for (int64_t l = lists->start[j]; l < lists->start[j + 1]; l++) {
        const int64_t place = lists->place[l];
        const int32_t i = (int32_t)(place / v->slot);
        const int64_t first = (int64_t)i * v->slot;
        const double scale = v->weight[i] * v->element[place];

        for (int64_t k = first; k < first + v->length[i]; k++) {
            double value = v->element[k] * scale;
            if (i == j && v->index[k] == j)
                value = value + RCOND - shift;
            add_element(row, v->index[k], value);
        }
    }
}

static int compare_columns(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left;
    const int32_t b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Stores the formed row from element k of the matrix on, columns ascending. */
static void store_row(struct accumulator *row, const struct csr_matrix *matrix, int64_t k)
{
    qsort(row->columns, (size_t)row->length, sizeof *row->columns, compare_columns);
    for (int32_t l = 0; l < row->length; l++, k++) {
        matrix->column[k] = row->columns[l];
        matrix->value[k] = row->sum[row->columns[l]];
    }
}

struct csr_matrix make_cg_matrix(int32_t n, int32_t nonzer, double shift)
{
    struct vectors vectors = draw_vectors(n, nonzer);
    struct row_lists lists = list_rows(&vectors);
    struct csr_matrix matrix = {.n = n};
    matrix.row_start = allocate_untouched((size_t)n + 1, sizeof *matrix.row_start);

#pragma omp parallel
    {
        struct accumulator row = allocate_accumulator(n);

#pragma omp for schedule(static)
        for (int32_t j = 0; j < n; j++) {
            form_row(&row, &vectors, &lists, j, shift);
            matrix.row_start[j + 1] = row.length;
            clear_row(&row);
        }
#pragma omp single
        {
            accumulate_counts(matrix.row_start, n);
            const size_t elements = (size_t)matrix.row_start[n];
            matrix.column = allocate_untouched(elements, sizeof *matrix.column);
            matrix.value = allocate_untouched(elements, sizeof *matrix.value);
        }
#pragma omp for schedule(static)
        for (int32_t j = 0; j < n; j++) {
            form_row(&row, &vectors, &lists, j, shift);
            store_row(&row, &matrix, matrix.row_start[j]);
            clear_row(&row);
        }
        release_accumulator(&row, n);
    }
    release_row_lists(&lists, n);
    release_vectors(&vectors);
    return matrix;
}
