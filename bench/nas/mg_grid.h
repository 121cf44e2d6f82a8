/*
 * Periodic grids and the four operators of NAS kernel MG.
 */
#ifndef BENCH_NAS_MG_GRID_H
#define BENCH_NAS_MG_GRID_H

#include <stddef.h>

#define MG_MAX_EXTENT 512

/*
 * A cube of n points in each direction, n a power of two, periodic in all of
 * them.  Rows run along x and carry a copy of their last point before the first,
 * and of their first after the last; use mg_row to find one.
 */
struct mg_grid {
    int n;
    int first; /* the planes that are computed here: from this one, */
    int end;   /* to before this one; all, but for ranks (team/kernels/mg.c) */
    size_t row_stride;
    size_t plane_stride;
    double *values;
};

/* Weights of a symmetric 27-point stencil, by distance from its centre. */
struct mg_stencil {
    double centre;
    double face;   /* 6 neighbours, at distance 1 */
    double edge;   /* 12, at sqrt(2) */
    double corner; /* 8, at sqrt(3) */
};

/*
 * A grid of zeros.  Row y of plane z is first written by the thread to which
 * schedule(static), over all rows of all planes, gives it.
 */
struct mg_grid make_mg_grid(int n);

/* The same for a rank, which computes these planes only.  The others take address space, and memory when they are
 * written. */
struct mg_grid make_mg_part(int n, int first, int end);

/* Point 0 of a row.  Points -1 and n are there as well. */
static inline double *mg_row(const struct mg_grid *grid, int z, int y)
{
    return grid->values + (size_t)z * grid->plane_stride + (size_t)y * grid->row_stride + 2;
}

/* Restores the copies at both ends of a row that was written. */
static inline void mg_close_row(double *row, int n)
{
    row[-1] = row[n - 1];
    row[n] = row[0];
}

/* Sets all points that are computed here to zero.  This and the operators are shared out among the
 * threads of the enclosing parallel region, which all must call them. */
void mg_clear(const struct mg_grid *grid);

/* r = v - A u for a stencil A whose face weight is zero.  r may be v. */
void mg_residual(const struct mg_stencil *a, const struct mg_grid *u, const struct mg_grid *v,
                 const struct mg_grid *r);

/* u = u + C r for a stencil C whose corner weight is zero. */
void mg_smooth(const struct mg_stencil *c, const struct mg_grid *r, const struct mg_grid *u);

/* coarse = P fine: weighted means around every other point. */
void mg_restrict(const struct mg_grid *fine, const struct mg_grid *coarse);

enum mg_update { MG_SET, MG_ADD };

/* fine = Q coarse, or fine = fine + Q coarse: trilinear interpolation. */
void mg_prolong(const struct mg_grid *coarse, const struct mg_grid *fine, enum mg_update update);

/* The sum of the squares of the points that are computed here.  Makes its own parallel region. */
double mg_square_sum(const struct mg_grid *grid);

/* The root of the mean square of all points. */
double mg_norm(const struct mg_grid *grid);

#endif
