/*
 * Periodic grids and the four operators of NAS kernel MG.
 *
 * Problem.  Apply 27-point stencils to a periodic grid, and pass between grids
 * of n and n/2 points a side, of which the coarser holds every other point of
 * the finer: point 2 i + 1 in each direction.
 *
 * Method.  All weights depend on distance alone.  So the eight rows around a row
 * are first added up, in two lines: "near", the four that share a face with it,
 * and "far", the four beyond an edge.  A point's neighbours are then few:
 *
 *     6 at a face       its own row, left and right; near, in the middle
 *     12 at an edge     near, left and right; far, in the middle
 *     8 at a corner     far, left and right
 *
 * Neighbouring rows are found by wrapping indices, and rows close themselves by
 * a copy of one point at each end; so no pass is spent, and no thread waits, on
 * copying the sides of the cube.
 *
 * Memory.  Every loop is over all rows of all planes, which leaves work for
 * all threads where planes are few, with schedule(static): a row is always
 * written by the same thread, the one that wrote it first.  Rows of a coarser
 * grid lie with the rows of the finer that they come from, but for rounding.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel MG.
 */
#include "nas/mg_grid.h"

#include "common/memory.h"
#include "common/schedule.h"

#include <math.h>

struct mg_grid make_mg_grid(int n)
{
    return make_mg_part(n, 0, n);
}

struct mg_grid make_mg_part(int n, int first, int end)
{
    struct mg_grid grid = {.n = n, .first = first, .end = end, .row_stride = (size_t)n + 4};
    grid.plane_stride = (size_t)n * grid.row_stride;
    grid.values = allocate_untouched((size_t)n * grid.plane_stride, sizeof *grid.values);
#pragma omp parallel
    mg_clear(&grid);
    return grid;
}

void mg_clear(const struct mg_grid *grid)
{
    const int n = grid->n;

#pragma omp for collapse(2) schedule(static)
    for (int z = grid->first; z < grid->end; z++)
        for (int y = 0; y < n; y++) {
            double *row = mg_row(grid, z, y);
            for (int x = -1; x <= n; x++)
                row[x] = 0.0;
        }
}

double mg_square_sum(const struct mg_grid *grid)
{
    const int n = grid->n;
    double sum = 0.0;

#pragma omp parallel for collapse(2) schedule(LOOP_SCHEDULE) reduction(+ : sum)
    for (int z = grid->first; z < grid->end; z++)
        for (int y = 0; y < n; y++) {
            const double *row = mg_row(grid, z, y);
            for (int x = 0; x < n; x++)
                sum += row[x] * row[x];
        }
    return sum;
}

double mg_norm(const struct mg_grid *grid)
{
    return sqrt(mg_square_sum(grid) / ((double)grid->n * grid->n * grid->n));
}

/* ---- Sums of neighbouring rows ------------------------------------------- */

/* One thread's two lines of sums.  Index x + 1 holds the sum at point x. */
struct lines {
    double near[MG_MAX_EXTENT + 2];
    double far[MG_MAX_EXTENT + 2];
};

/* Adds up the rows around row y of plane z, at all points from -1 to n. */
static void add_rows(const struct mg_grid *grid, int z, int y, struct lines *lines)
{
    const int n = grid->n;
    const int last = n - 1; /* as a mask, it wraps an index */
    const int below = (z - 1) & last;
    const int above = (z + 1) & last;
    const int before = (y - 1) & last;
    const int behind = (y + 1) & last;
    const double *near1 = mg_row(grid, z, before) - 1;
    const double *near2 = mg_row(grid, z, behind) - 1;
    const double *near3 = mg_row(grid, below, y) - 1;
    const double *near4 = mg_row(grid, above, y) - 1;
    const double *far1 = mg_row(grid, below, before) - 1;
    const double *far2 = mg_row(grid, below, behind) - 1;
    const double *far3 = mg_row(grid, above, before) - 1;
    const double *far4 = mg_row(grid, above, behind) - 1;

#pragma omp simd
    for (int i = 0; i < n + 2; i++) {
        lines->near[i] = near1[i] + near2[i] + near3[i] + near4[i];
        lines->far[i] = far1[i] + far2[i] + far3[i] + far4[i];
    }
}

/* ---- Operators ----------------------------------------------------------- */

void mg_residual(const struct mg_stencil *a, const struct mg_grid *u, const struct mg_grid *v,
                 const struct mg_grid *r)
{
    const int n = u->n;
    const struct mg_stencil w = *a;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int z = r->first; z < r->end; z++)
        for (int y = 0; y < n; y++) {
            struct lines lines;
            add_rows(u, z, y, &lines);
            const double *near = lines.near + 1;
            const double *far = lines.far + 1;
            const double *u_row = mg_row(u, z, y);
            const double *v_row = mg_row(v, z, y);
            double *r_row = mg_row(r, z, y);
#pragma omp simd
            for (int x = 0; x < n; x++)
                r_row[x] = v_row[x] - w.centre * u_row[x] -
                           w.edge * (far[x] + near[x - 1] + near[x + 1]) -
                           w.corner * (far[x - 1] + far[x + 1]);
            mg_close_row(r_row, n);
        }
}

void mg_smooth(const struct mg_stencil *c, const struct mg_grid *r, const struct mg_grid *u)
{
    const int n = r->n;
    const struct mg_stencil w = *c;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int z = u->first; z < u->end; z++)
        for (int y = 0; y < n; y++) {
            struct lines lines;
            add_rows(r, z, y, &lines);
            const double *near = lines.near + 1;
            const double *far = lines.far + 1;
            const double *r_row = mg_row(r, z, y);
            double *u_row = mg_row(u, z, y);
#pragma omp simd
            for (int x = 0; x < n; x++)
                u_row[x] += w.centre * r_row[x] +
                            w.face * (r_row[x - 1] + r_row[x + 1] + near[x]) +
                            w.edge * (far[x] + near[x - 1] + near[x + 1]);
            mg_close_row(u_row, n);
        }
}

void mg_restrict(const struct mg_grid *fine, const struct mg_grid *coarse)
{
    const int n = coarse->n;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int z = coarse->first; z < coarse->end; z++)
        for (int y = 0; y < n; y++) {
            struct lines lines;
            add_rows(fine, 2 * z + 1, 2 * y + 1, &lines);
            const double *near = lines.near + 1;
            const double *far = lines.far + 1;
            const double *from = mg_row(fine, 2 * z + 1, 2 * y + 1);
            double *to = mg_row(coarse, z, y);
#pragma omp simd
            for (int x = 0; x < n; x++) {
                const int i = 2 * x + 1;
                to[x] = 0.5 * from[i] + 0.25 * (from[i - 1] + from[i + 1] + near[i]) +
                        0.125 * (near[i - 1] + near[i + 1] + far[i]) +
                        0.0625 * (far[i - 1] + far[i + 1]);
            }
            mg_close_row(to, n);
        }
}

/*
 * The coarse points on either side of fine point i, which are the same where i
 * is itself a coarse point.
 */
static int coarse_before(int i, int n)
{
    return i % 2 == 1 ? i / 2 : (i / 2 - 1) & (n - 1);
}

static int coarse_behind(int i)
{
    return i / 2;
}

void mg_prolong(const struct mg_grid *coarse, const struct mg_grid *fine, enum mg_update update)
{
    const int n = coarse->n;

#pragma omp for collapse(2) schedule(LOOP_SCHEDULE)
    for (int z = fine->first; z < fine->end; z++)
        for (int y = 0; y < 2 * n; y++) {
            const int below = coarse_before(z, n);
            const int above = coarse_behind(z);
            const int before = coarse_before(y, n);
            const int behind = coarse_behind(y);
            const double *row1 = mg_row(coarse, below, before) - 1;
            const double *row2 = mg_row(coarse, below, behind) - 1;
            const double *row3 = mg_row(coarse, above, before) - 1;
            const double *row4 = mg_row(coarse, above, behind) - 1;
            double *to = mg_row(fine, z, y);
            double line[MG_MAX_EXTENT / 2 + 2]; /* index x + 1 is for point x */

            if (update == MG_SET)
                for (int x = 0; x < 2 * n; x++)
                    to[x] = 0.0;
#pragma omp simd
            for (int i = 0; i < n + 2; i++)
                line[i] = 0.25 * (row1[i] + row2[i] + row3[i] + row4[i]);
#pragma omp simd
            for (int x = 0; x < n; x++) {
                to[2 * x] += 0.5 * (line[x] + line[x + 1]);
                to[2 * x + 1] += line[x + 1];
            }
            mg_close_row(to, 2 * n);
        }
}
