/*
 * Three-dimensional fast Fourier transforms for NAS kernel FT.
 *
 * Problem.  Transform an array along each of its three dimensions in turn.
 *
 * Method.  Lines are copied, BATCH neighbours at a time, into work space that
 * fits a core's cache, transformed there and copied back.  There the real and
 * imaginary parts are apart and the batch is the fastest dimension: all
 * arithmetic is on BATCH or more contiguous numbers, which any compiler can
 * vectorise.  Each line is transformed by Stockham's algorithm, which sorts as
 * it goes and needs no bit reversal, in steps of radix 4, with a last one of
 * radix 2 where the length is an odd power of two.  The inverse transform is
 * the forward one with real and imaginary parts exchanged before and after.
 *
 * Memory.  In space z is slowest, so that transforms along x and y stay within a
 * plane and thus within a thread's part.  The spectrum is only used by the
 * transforms along z; it has y slowest, which makes these read or write it
 * locally as well.  Between the two, data must cross from every thread to every
 * other: reading or writing space along z.  Loops are over all batches of all
 * planes with schedule(static), which leaves work for all threads where planes
 * are few.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel FT; C. Van Loan, "Computational Frameworks for the Fast
 * Fourier Transform", SIAM, 1992, for the radix-4 Stockham algorithm.
 */
#include "nas/ft_transform.h"

#include "common/memory.h"
#include "common/schedule.h"

#include <math.h>

#define BATCH FT_BATCH /* two cache lines of complex numbers */

/* ---- Grids --------------------------------------------------------------- */

static void clear_row(struct ft_complex *row, int nx)
{
    for (int x = 0; x < nx; x++)
        row[x] = (struct ft_complex){0.0, 0.0};
}

struct ft_grid make_ft_grid_by_z(int nx, int ny, int nz)
{
    struct ft_grid grid = {.nx = nx, .ny = ny, .nz = nz};
    grid.y_stride = (size_t)nx + FT_ROW_PADDING;
    grid.z_stride = (size_t)ny * grid.y_stride;
    grid.values = allocate_untouched((size_t)nz * grid.z_stride, sizeof *grid.values);
#pragma omp parallel for collapse(2) schedule(static)
    for (int z = 0; z < nz; z++)
        for (int y = 0; y < ny; y++)
            clear_row(ft_row(&grid, y, z), nx);
    return grid;
}

struct ft_grid make_ft_grid_by_y(int nx, int ny, int nz)
{
    struct ft_grid grid = {.nx = nx, .ny = ny, .nz = nz};
    grid.z_stride = (size_t)nx + FT_ROW_PADDING;
    grid.y_stride = (size_t)nz * grid.z_stride;
    grid.values = allocate_untouched((size_t)ny * grid.y_stride, sizeof *grid.values);
#pragma omp parallel for collapse(2) schedule(static)
    for (int y = 0; y < ny; y++)
        for (int z = 0; z < nz; z++)
            clear_row(ft_row(&grid, y, z), nx);
    return grid;
}

/* ---- Transforming a batch of lines --------------------------------------- */

/* Point k of line l of a batch is at index k * BATCH + l. */
struct batch {
    double *re;
    double *im;
};

/* Work space for one batch, twice over: a step reads one and writes the other. */
struct work_space {
    double part[4][FT_MAX_EXTENT * BATCH];
};

void ft_make_roots(struct ft_roots *roots)
{
    const double pi = 3.14159265358979323846;
    for (int k = 0; k < FT_MAX_EXTENT; k++) {
        roots->re[k] = cos(2.0 * pi * k / FT_MAX_EXTENT);
        roots->im[k] = -sin(2.0 * pi * k / FT_MAX_EXTENT);
    }
}

/*
 * A step of Stockham's algorithm takes transforms of length m, of which there
 * are s side by side, point p of each at p * s, and splits each into four (or
 * two) of a fourth (or half) the length, again side by side.  So m s is the
 * length of the whole transform times BATCH throughout, and s grows from BATCH.
 */
static void step_radix4(const struct ft_roots *roots, int m, int s, const struct batch *from,
                        const struct batch *to)
{
    const int quarter = m / 4 * s;
    const int root_step = FT_MAX_EXTENT / m;

    for (int p = 0; p < m / 4; p++) {
        const double *x_re = from->re + p * s;
        const double *x_im = from->im + p * s;
        double *y_re = to->re + 4 * p * s;
        double *y_im = to->im + 4 * p * s;
        const double w1_re = roots->re[p * root_step];
        const double w1_im = roots->im[p * root_step];
        const double w2_re = roots->re[2 * p * root_step];
        const double w2_im = roots->im[2 * p * root_step];
        const double w3_re = roots->re[3 * p * root_step];
        const double w3_im = roots->im[3 * p * root_step];

#pragma omp simd
        for (int i = 0; i < s; i++) {
            const double sum02_re = x_re[i] + x_re[i + 2 * quarter];
            const double sum02_im = x_im[i] + x_im[i + 2 * quarter];
            const double dif02_re = x_re[i] - x_re[i + 2 * quarter];
            const double dif02_im = x_im[i] - x_im[i + 2 * quarter];
            const double sum13_re = x_re[i + quarter] + x_re[i + 3 * quarter];
            const double sum13_im = x_im[i + quarter] + x_im[i + 3 * quarter];
            const double dif13_re = x_re[i + quarter] - x_re[i + 3 * quarter];
            const double dif13_im = x_im[i + quarter] - x_im[i + 3 * quarter];
            const double t1_re = dif02_re + dif13_im; /* dif02 - i dif13 */
            const double t1_im = dif02_im - dif13_re;
            const double t2_re = sum02_re - sum13_re;
            const double t2_im = sum02_im - sum13_im;
            const double t3_re = dif02_re - dif13_im; /* dif02 + i dif13 */
            const double t3_im = dif02_im + dif13_re;
            y_re[i] = sum02_re + sum13_re;
            y_im[i] = sum02_im + sum13_im;
            y_re[i + s] = t1_re * w1_re - t1_im * w1_im;
            y_im[i + s] = t1_re * w1_im + t1_im * w1_re;
            y_re[i + 2 * s] = t2_re * w2_re - t2_im * w2_im;
            y_im[i + 2 * s] = t2_re * w2_im + t2_im * w2_re;
            y_re[i + 3 * s] = t3_re * w3_re - t3_im * w3_im;
            y_im[i + 3 * s] = t3_re * w3_im + t3_im * w3_re;
        }
    }
}

/* The last step, of transforms of length two. */
static void step_radix2(int s, const struct batch *from, const struct batch *to)
{
#pragma omp simd
    for (int i = 0; i < s; i++) {
        const double re = from->re[i + s];
        const double im = from->im[i + s];
        to->re[i + s] = from->re[i] - re;
        to->im[i + s] = from->im[i] - im;
        to->re[i] = from->re[i] + re;
        to->im[i] = from->im[i] + im;
    }
}

static void exchange_batches(struct batch *a, struct batch *b)
{
    const struct batch old_a = *a;
    *a = *b;
    *b = old_a;
}

static void exchange_parts(struct batch *a)
{
    *a = (struct batch){.re = a->im, .im = a->re};
}

/* Transforms the n points of all lines of x, with y to work in. */
static void transform(const struct ft_roots *roots, int n, enum ft_direction direction,
                      struct batch *x, struct batch *y)
{
    int m = n;
    int s = BATCH;

    if (direction == FT_INVERSE) {
        exchange_parts(x);
        exchange_parts(y);
    }
    for (; m >= 4; m /= 4, s *= 4) {
        step_radix4(roots, m, s, x, y);
        exchange_batches(x, y);
    }
    if (m == 2) {
        step_radix2(s, x, y);
        exchange_batches(x, y);
    }
    if (direction == FT_INVERSE)
        exchange_parts(x);
}

/* ---- Copying lines in and out -------------------------------------------- */

/* Copies lines that are contiguous, and lie a row apart. */
static void load_rows(const struct ft_complex *from, size_t row, int n, const struct batch *to)
{
    for (int k = 0; k < n; k++)
#pragma omp simd
        for (int l = 0; l < BATCH; l++) {
            to->re[k * BATCH + l] = from[(size_t)l * row + (size_t)k].re;
            to->im[k * BATCH + l] = from[(size_t)l * row + (size_t)k].im;
        }
}

static void store_rows(const struct batch *from, int n, size_t row, struct ft_complex *to)
{
    for (int l = 0; l < BATCH; l++)
        for (int k = 0; k < n; k++)
            to[(size_t)l * row + (size_t)k] =
                (struct ft_complex){from->re[k * BATCH + l], from->im[k * BATCH + l]};
}

/* Copies lines whose points lie a stride apart, next to each other. */
static void load_columns(const struct ft_complex *from, size_t stride, int n,
                         const struct batch *to)
{
    for (int k = 0; k < n; k++)
#pragma omp simd
        for (int l = 0; l < BATCH; l++) {
            to->re[k * BATCH + l] = from[(size_t)k * stride + (size_t)l].re;
            to->im[k * BATCH + l] = from[(size_t)k * stride + (size_t)l].im;
        }
}

static void store_columns(const struct batch *from, int n, size_t stride, struct ft_complex *to)
{
    for (int k = 0; k < n; k++)
#pragma omp simd
        for (int l = 0; l < BATCH; l++) {
            to[(size_t)k * stride + (size_t)l].re = from->re[k * BATCH + l];
            to[(size_t)k * stride + (size_t)l].im = from->im[k * BATCH + l];
        }
}

/* Multiplies point k of line l by along[k] and by across[l]. */
static void scale(const struct batch *x, int n, const double *along, const double *across)
{
    for (int k = 0; k < n; k++)
#pragma omp simd
        for (int l = 0; l < BATCH; l++) {
            const double factor = along[k] * across[l];
            x->re[k * BATCH + l] *= factor;
            x->im[k * BATCH + l] *= factor;
        }
}

/* ---- Passes over a grid -------------------------------------------------- */

void ft_along_x(const struct ft_roots *roots, enum ft_direction direction, const struct ft_grid *grid)
{
    struct work_space work;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int z = 0; z < grid->nz; z++)
        for (int y = 0; y < grid->ny; y += BATCH) {
            struct batch a = {work.part[0], work.part[1]};
            struct batch b = {work.part[2], work.part[3]};
            load_rows(ft_row(grid, y, z), grid->y_stride, grid->nx, &a);
            transform(roots, grid->nx, direction, &a, &b);
            store_rows(&a, grid->nx, grid->y_stride, ft_row(grid, y, z));
        }
}

/* The rest of a batch, from point k of each line on. */
static struct batch from_point(const struct batch *batch, int k)
{
    return (struct batch){batch->re + k * BATCH, batch->im + k * BATCH};
}

void ft_along_y(const struct ft_roots *roots, enum ft_direction direction, const struct ft_grid *from,
                int parts, const struct ft_grid *to)
{
    struct work_space work;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int z = 0; z < to->nz; z++)
        for (int x = 0; x < to->nx; x += BATCH) {
            struct batch a = {work.part[0], work.part[1]};
            struct batch b = {work.part[2], work.part[3]};
            for (int part = 0, y = 0; part < parts; y += from[part].ny, part++) {
                const struct batch rest = from_point(&a, y);
                load_columns(ft_row(&from[part], 0, z) + x, from[part].y_stride, from[part].ny, &rest);
            }
            transform(roots, to->ny, direction, &a, &b);
            store_columns(&a, to->ny, to->y_stride, ft_row(to, 0, z) + x);
        }
}

void ft_along_z(const struct ft_roots *roots, enum ft_direction direction,
                const struct ft_factors *factors, const struct ft_grid *from, int parts,
                const struct ft_grid *to)
{
    struct work_space work;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int y = 0; y < to->ny; y++)
        for (int x = 0; x < to->nx; x += BATCH) {
            struct batch a = {work.part[0], work.part[1]};
            struct batch b = {work.part[2], work.part[3]};
            for (int part = 0, z = 0; part < parts; z += from[part].nz, part++) {
                const struct batch rest = from_point(&a, z);
                load_columns(ft_row(&from[part], y, 0) + x, from[part].z_stride, from[part].nz, &rest);
            }
            if (factors != NULL) {
                double across[BATCH];
                for (int l = 0; l < BATCH; l++)
                    across[l] = factors->x[x + l] * factors->y[y];
                scale(&a, to->nz, factors->z, across);
            }
            transform(roots, to->nz, direction, &a, &b);
            store_columns(&a, to->nz, to->z_stride, ft_row(to, y, 0) + x);
        }
}

void ft_forward(const struct ft_roots *roots, const struct ft_grid *space,
                const struct ft_grid *spectrum)
{
    ft_along_x(roots, FT_FORWARD, space);
    ft_along_y(roots, FT_FORWARD, space, 1, space);
    ft_along_z(roots, FT_FORWARD, NULL, space, 1, spectrum);
}

void ft_inverse(const struct ft_roots *roots, const struct ft_factors *factors,
                const struct ft_grid *spectrum, const struct ft_grid *space)
{
    ft_along_z(roots, FT_INVERSE, factors, spectrum, 1, space);
    ft_along_y(roots, FT_INVERSE, space, 1, space);
    ft_along_x(roots, FT_INVERSE, space);
}
