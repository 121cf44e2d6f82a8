/*
 * Three-dimensional fast Fourier transforms for NAS kernel FT.
 */
#ifndef BENCH_NAS_FT_TRANSFORM_H
#define BENCH_NAS_FT_TRANSFORM_H

#include <stddef.h>

#define FT_MAX_EXTENT 512
#define FT_BATCH 8       /* lines that are transformed at a time */
#define FT_ROW_PADDING 4 /* between rows: a cache line, lest the rows of a column compete for cache sets */

struct ft_complex {
    double re;
    double im;
};

/*
 * An array of nx x ny x nz points, each a power of two from 16 to FT_MAX_EXTENT.
 * Rows along x are contiguous; either y or z may be the slowest dimension.
 */
struct ft_grid {
    int nx, ny, nz;
    size_t y_stride;
    size_t z_stride;
    struct ft_complex *values;
};

/*
 * A grid of zeros, cut along its slowest dimension: row y of plane z is first
 * written by the thread to which schedule(static) gives it, among all rows.
 */
struct ft_grid make_ft_grid_by_z(int nx, int ny, int nz);
struct ft_grid make_ft_grid_by_y(int nx, int ny, int nz);

/* The first point of a row. */
static inline struct ft_complex *ft_row(const struct ft_grid *grid, int y, int z)
{
    return grid->values + (size_t)y * grid->y_stride + (size_t)z * grid->z_stride;
}

/* A real factor for each point, which is a product: x[i] y[j] z[k]. */
struct ft_factors {
    double x[FT_MAX_EXTENT];
    double y[FT_MAX_EXTENT];
    double z[FT_MAX_EXTENT];
};

/* The complex roots of unity that the transforms need. */
struct ft_roots {
    double re[FT_MAX_EXTENT];
    double im[FT_MAX_EXTENT];
};

void ft_make_roots(struct ft_roots *roots);

/*
 * Both transforms are unnormalised sums over exp(-+2 pi i k x / n), with minus
 * in the forward one, and are shared out among the threads of the enclosing
 * parallel region, which all must call them.  One grid has z slowest and holds
 * values in space, the other has y slowest and holds their spectrum.
 */

/* Transforms space, which it uses as work space, into spectrum. */
void ft_forward(const struct ft_roots *roots, const struct ft_grid *space,
                const struct ft_grid *spectrum);

/* Transforms the product of spectrum and factors into space. */
void ft_inverse(const struct ft_roots *roots, const struct ft_factors *factors,
                const struct ft_grid *spectrum, const struct ft_grid *space);

/*
 * Parts of these transforms: passes along one dimension, for grids that are spread over ranks.  A grid is any
 * box here whose transformed dimension is a power of two; nx, and ny for a pass along x, are multiples of
 * FT_BATCH.  The lines of `to` may come from several grids, which follow each other along the pass's
 * dimension; one grid may also be `to` itself.
 */
enum ft_direction { FT_FORWARD, FT_INVERSE };

void ft_along_x(const struct ft_roots *roots, enum ft_direction direction, const struct ft_grid *grid);
void ft_along_y(const struct ft_roots *roots, enum ft_direction direction, const struct ft_grid *from,
                int parts, const struct ft_grid *to);

/* Multiplies by the factors first, unless they are NULL. */
void ft_along_z(const struct ft_roots *roots, enum ft_direction direction,
                const struct ft_factors *factors, const struct ft_grid *from, int parts,
                const struct ft_grid *to);

#endif
