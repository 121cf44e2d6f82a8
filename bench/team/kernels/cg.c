/*
 * NAS kernel CG by ranks: each has some rows of the matrix and the same part of all vectors.
 *
 * In every step the search direction goes from each rank to all others, and the ranks add up two sums.
 * Ranks meet three times in a fraction of a millisecond: CG shows what waiting costs.  Every rank
 * makes the whole matrix in its untimed part, and reads its own rows.
 *
 * See nas/cg.c for problem, method and source.
 */
#include "team/kernels/kernel.h"

#include "nas/cg_matrix.h"
#include "nas/cg_problem.h"

#include <math.h>
#include <string.h>

struct cg {
    const struct cg_class *problem;
    struct csr_matrix matrix;
    int32_t first; /* rows of this rank: from here */
    int32_t count; /* this many */
    /* Parts of this rank: the vectors of nas/cg.c. */
    double *x;
    double *z;
    double *q;
    double *r;
    double *p;    /* in the outgoing memory: the part that others get */
    double *full; /* all parts of the vector that was exchanged last */
    struct parcels parcels;
    double zeta;
};

static size_t outgoing_bytes(const struct job *job)
{
    const size_t rows = (size_t)cg_classes[job->problem_class].na;
    const size_t ranks = (size_t)job->ranks;
    return (rows + ranks - 1) / ranks * sizeof(double);
}

static int ranks_max(enum problem_class problem_class)
{
    return cg_classes[problem_class].na;
}

static double operations(enum problem_class problem_class)
{
    return cg_operations(&cg_classes[problem_class]);
}

/* Gives this rank's part, which is in the outgoing memory, to all ranks, and collects theirs. */
static void collect(struct rank *rank, struct cg *cg)
{
    exchange(rank, &cg->parcels);
    for (int from = 0; from < rank->job->ranks; from++)
        memcpy(cg->full + first_of(cg->problem->na, from, rank->job->ranks), cg->parcels.arrived[from],
               cg->parcels.take[from]);
    exchange_is_over(rank);
}

/* This rank's rows of the matrix times the vector that was exchanged last. */
static void multiply(const struct cg *cg, double *restrict y)
{
    const int64_t *row_start = cg->matrix.row_start + cg->first;
    const int32_t *column = cg->matrix.column;
    const double *value = cg->matrix.value;
    for (int32_t j = 0; j < cg->count; j++) {
        double sum = 0.0;
        for (int64_t k = row_start[j]; k < row_start[j + 1]; k++)
            sum += value[k] * cg->full[column[k]];
        y[j] = sum;
    }
}

static double dot(struct rank *rank, const double *restrict a, const double *restrict b, int32_t count)
{
    double mine = 0.0;
    double all = 0.0;
    for (int32_t j = 0; j < count; j++)
        mine += a[j] * b[j];
    all_sum(rank, &mine, &all, 1, NUMBER_F64);
    return all;
}

/* Solves A z = x by CG_STEPS conjugate gradient steps. */
static void conj_grad(struct rank *rank, struct cg *cg)
{
    const int32_t count = cg->count;
    const size_t bytes = (size_t)count * sizeof(double);
    memset(cg->z, 0, bytes);
    memcpy(cg->r, cg->x, bytes);
    memcpy(cg->p, cg->x, bytes);
    double rho = dot(rank, cg->r, cg->r, count);
    for (int step = 0; step < CG_STEPS; step++) {
        collect(rank, cg);
        multiply(cg, cg->q);
        const double alpha = rho / dot(rank, cg->p, cg->q, count);
        for (int32_t j = 0; j < count; j++) {
            cg->z[j] += alpha * cg->p[j];
            cg->r[j] -= alpha * cg->q[j];
        }
        const double rho_old = rho;
        rho = dot(rank, cg->r, cg->r, count);
        const double beta = rho / rho_old;
        for (int32_t j = 0; j < count; j++)
            cg->p[j] = cg->r[j] + beta * cg->p[j];
    }
    /* The true residual, which NPB reports: one more product of the timed section. */
    memcpy(cg->p, cg->z, bytes);
    collect(rank, cg);
    multiply(cg, cg->r);
    for (int32_t j = 0; j < count; j++)
        cg->q[j] = cg->x[j] - cg->r[j];
    (void)dot(rank, cg->q, cg->q, count);
}

/* One inverse power iteration: replaces x by the next eigenvector estimate. */
static void iterate(struct rank *rank, struct cg *cg)
{
    conj_grad(rank, cg);
    const double xz = dot(rank, cg->x, cg->z, cg->count);
    const double scale = 1.0 / sqrt(dot(rank, cg->z, cg->z, cg->count));
    for (int32_t j = 0; j < cg->count; j++)
        cg->x[j] = scale * cg->z[j];
    cg->zeta = cg->problem->shift + 1.0 / xz;
}

static void start(struct cg *cg)
{
    for (int32_t j = 0; j < cg->count; j++)
        cg->x[j] = 1.0;
}

static void *prepare(struct rank *rank)
{
    const int ranks = rank->job->ranks;
    struct cg *cg = fresh(1, sizeof *cg);
    cg->problem = &cg_classes[rank->job->problem_class];
    cg->matrix = make_cg_matrix(cg->problem->na, cg->problem->nonzer, cg->problem->shift);
    cg->first = first_of(cg->problem->na, rank->me, ranks);
    cg->count = first_of(cg->problem->na, rank->me + 1, ranks) - cg->first;
    const size_t count = (size_t)cg->count;
    cg->x = fresh(count, sizeof(double));
    cg->z = fresh(count, sizeof(double));
    cg->q = fresh(count, sizeof(double));
    cg->r = fresh(count, sizeof(double));
    cg->full = fresh((size_t)cg->problem->na, sizeof(double));
    cg->p = (double *)(void *)rank->ways->outgoing(rank, outgoing_bytes(rank->job));
    /* All ranks get the same part of this rank's, from its beginning. */
    cg->parcels = make_parcels(ranks);
    cg->parcels.same = true;
    for (int r = 0; r < ranks; r++) {
        cg->parcels.send[r] = count * sizeof(double);
        cg->parcels.take[r] =
            (size_t)(first_of(cg->problem->na, r + 1, ranks) - first_of(cg->problem->na, r, ranks)) * sizeof(double);
    }
    start(cg);
    iterate(rank, cg);
    return cg;
}

static void repeat(struct rank *rank, void *state)
{
    struct cg *cg = state;
    start(cg);
    for (int i = 0; i < cg->problem->niter; i++)
        iterate(rank, cg);
}

static bool is_right(struct rank *rank, void *state)
{
    const struct cg *cg = state;
    (void)rank;
    return fabs(cg->zeta - cg->problem->zeta) <= CG_TOLERANCE * fabs(cg->problem->zeta);
}

const struct kernel_program kernel_cg = {"cg", outgoing_bytes, ranks_max, operations, prepare, repeat, is_right};
