/*
 * NAS kernel CG, "conjugate gradient".
 *
 * Problem.  Estimate the largest eigenvalue, zeta, of a large sparse symmetric
 * positive definite matrix with a random pattern of nonzeros.
 *
 * Method.  All eigenvalues are below a given shift, so zeta is the one nearest
 * to it, and inverse power iteration on A, the matrix less shift times the
 * identity, converges to it.  Starting from x = (1, ..., 1), repeat
 *
 *     solve A z = x,    zeta = shift + 1 / (x . z),    x = z / ||z||.
 *
 * Each system is solved, approximately, by 25 steps of the unpreconditioned
 * conjugate gradient method.  Nearly all the time goes into the product of A
 * with a vector, which reads A in order and the vector at random: CG measures
 * memory bandwidth and irregular access, with a handful of barriers and
 * reductions in every step.
 *
 * Memory.  Every loop over rows uses schedule(static), unless the program is
 * built to read OMP_SCHEDULE (common/schedule.h), so that row j of the
 * matrix and element j of all vectors belong to the same thread throughout;
 * that thread is the first to write them, which puts them on its NUMA node.
 * (make_cg_matrix does so for the matrix, start_vectors for the vectors.)
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel CG; class sizes, reference values of zeta, tolerance
 * and operation count as published with NPB 3.
 */
#include "common/arguments.h"
#include "common/memory.h"
#include "common/report.h"
#include "common/schedule.h"
#include "common/team.h"
#include "common/timer.h"
#include "nas/cg_matrix.h"
#include "nas/cg_problem.h"

#include <math.h>
#include <stdio.h>

/* The vectors of the method, under their customary names. */
struct cg_vectors {
    double *x; /* right-hand side: the current eigenvector estimate */
    double *z; /* solution */
    double *p; /* search direction */
    double *q; /* A p */
    double *r; /* residual */
};

/* One inverse power iteration's outcome. */
struct estimate {
    double rnorm; /* ||x - A z|| */
    double zeta;
};

static struct cg_vectors allocate_vectors(int32_t n)
{
    const size_t count = (size_t)n;
    return (struct cg_vectors){
        .x = allocate_untouched(count, sizeof(double)),
        .z = allocate_untouched(count, sizeof(double)),
        .p = allocate_untouched(count, sizeof(double)),
        .q = allocate_untouched(count, sizeof(double)),
        .r = allocate_untouched(count, sizeof(double)),
    };
}

/* Sets x to the starting vector.  The first call places all vectors' pages. */
static void start_vectors(const struct cg_vectors *v, int32_t n)
{
#pragma omp parallel for schedule(static)
    for (int32_t j = 0; j < n; j++) {
        v->x[j] = 1.0;
        v->z[j] = 0.0;
        v->p[j] = 0.0;
        v->q[j] = 0.0;
        v->r[j] = 0.0;
    }
}

/* y = A x, shared out among the threads of the enclosing parallel region. */
static void multiply(const struct csr_matrix *matrix, const double *x, double *restrict y)
{
    const int32_t n = matrix->n;
    const int64_t *row_start = matrix->row_start;
    const int32_t *column = matrix->column;
    const double *value = matrix->value;

#pragma omp for schedule(LOOP_SCHEDULE)
    for (int32_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (int64_t k = row_start[j]; k < row_start[j + 1]; k++)
            sum += value[k] * x[column[k]];
        y[j] = sum;
    }
}

/* Solves A z = x by CG_STEPS conjugate gradient steps; returns ||x - A z||. */
static double conj_grad(const struct csr_matrix *matrix, const struct cg_vectors *v)
{
    const int32_t n = matrix->n;
    const double *restrict x = v->x;
    double *restrict z = v->z;
    double *restrict p = v->p;
    double *restrict q = v->q;
    double *restrict r = v->r;
    double rho = 0.0;     /* r . r */
    double rho_old = 0.0; /* r . r of the step before */
    double pq = 0.0;      /* p . A p */
    double residual = 0.0;

#pragma omp parallel
    {
#pragma omp for schedule(LOOP_SCHEDULE) reduction(+ : rho)
        for (int32_t j = 0; j < n; j++) {
            z[j] = 0.0;
            r[j] = x[j];
            p[j] = x[j];
            rho += x[j] * x[j];
        }

        for (int step = 0; step < CG_STEPS; step++) {
#pragma omp single
            {
                rho_old = rho;
                rho = 0.0;
                pq = 0.0;
            }
            multiply(matrix, p, q);

#pragma omp for schedule(LOOP_SCHEDULE) reduction(+ : pq)
            for (int32_t j = 0; j < n; j++)
                pq += p[j] * q[j];

            const double alpha = rho_old / pq;
#pragma omp for schedule(LOOP_SCHEDULE) reduction(+ : rho)
            for (int32_t j = 0; j < n; j++) {
                z[j] += alpha * p[j];
                r[j] -= alpha * q[j];
                rho += r[j] * r[j];
            }

            const double beta = rho / rho_old;
#pragma omp for schedule(LOOP_SCHEDULE)
            for (int32_t j = 0; j < n; j++)
                p[j] = r[j] + beta * p[j];
        }

        /* r itself has drifted from the true residual by rounding. */
        multiply(matrix, z, r);
#pragma omp for schedule(LOOP_SCHEDULE) reduction(+ : residual)
        for (int32_t j = 0; j < n; j++)
            residual += (x[j] - r[j]) * (x[j] - r[j]);
    }
    return sqrt(residual);
}

/* One inverse power iteration: replaces x by the next eigenvector estimate. */
static struct estimate iterate(const struct csr_matrix *matrix, const struct cg_vectors *v,
                               double shift)
{
    const int32_t n = matrix->n;
    double *restrict x = v->x;
    const double *restrict z = v->z;
    double xz = 0.0;
    double zz = 0.0;
    struct estimate estimate = {.rnorm = conj_grad(matrix, v)};

#pragma omp parallel
    {
#pragma omp for schedule(LOOP_SCHEDULE) reduction(+ : xz, zz)
        for (int32_t j = 0; j < n; j++) {
            xz += x[j] * z[j];
            zz += z[j] * z[j];
        }
        const double scale = 1.0 / sqrt(zz);
#pragma omp for schedule(LOOP_SCHEDULE)
        for (int32_t j = 0; j < n; j++)
            x[j] = scale * z[j];
    }
    estimate.zeta = shift + 1.0 / xz;
    return estimate;
}

static void print_estimates(const struct estimate *estimates, int count)
{
    printf("   iteration           ||r||                 zeta\n");
    for (int i = 0; i < count; i++)
        printf("    %5d       %.14e %19.13f\n", i + 1, estimates[i].rnorm, estimates[i].zeta);
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "cg", "NAS kernel CG: largest eigenvalue of a sparse matrix by conjugate gradients"};
    static struct estimate estimates[CG_MAX_ITERATIONS];
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct cg_class *problem = &cg_classes[options.problem_class];

    struct bench_report report = {
        .kernel = "CG",
        .problem_class = options.problem_class,
        .size = {problem->na},
        .iterations = problem->niter,
        .threads = team_size(),
        .operation = "floating point",
    };
    if (!options.json)
        print_heading(&report);

    /* Set up, with one untimed iteration to warm caches and page tables. */
    const double setup_start = wall_seconds();
    const struct csr_matrix matrix = make_cg_matrix(problem->na, problem->nonzer, problem->shift);
    const struct cg_vectors vectors = allocate_vectors(problem->na);
    start_vectors(&vectors, problem->na);
    iterate(&matrix, &vectors, problem->shift);
    start_vectors(&vectors, problem->na);
    report.setup_seconds = wall_seconds() - setup_start;

    const double start = wall_seconds();
    for (int i = 0; i < problem->niter; i++)
        estimates[i] = iterate(&matrix, &vectors, problem->shift);
    report.seconds = wall_seconds() - start;
    report.mops = 1e-6 * cg_operations(problem) / report.seconds;

    const struct bench_value zeta = {"zeta", estimates[problem->niter - 1].zeta, problem->zeta};
    report.values = &zeta;
    report.value_count = 1;
    report.verified = values_agree(&zeta, 1, CG_TOLERANCE);
    if (!options.json)
        print_estimates(estimates, problem->niter);
    return finish_report(&report, options.json);
}
