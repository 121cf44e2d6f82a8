/*
 * NAS kernel FT by ranks.
 *
 * Problem.  That of nas/ft.c: a diffusion equation on a periodic box, solved
 * spectrally.  Transforms along x and y stay within a plane, those along z cross
 * all planes.
 *
 * Method.  Each rank has planes of space, by z, and planes of the spectrum, by
 * y; between the two every rank has a piece for every other rank.  The last
 * transform before the exchange writes its lines directly into the outgoing
 * memory, y slowest (or z, on the way back), so that the data for one rank are
 * one piece; the first transform after it reads its lines from the pieces that
 * arrived.  So nothing is packed or unpacked beside the arithmetic.
 *
 * Memory.  Space, spectrum and outgoing memory, a grid each, shared out.
 *
 * Source.  As of nas/ft.c; the distribution in slabs is that of the NPB's own
 * version for message passing ("1D layout").
 */
#include "team/kernels/kernel.h"

#include "nas/ft_problem.h"
#include "nas/ft_reference.h"

struct ft {
    const struct ft_class *problem;
    int ranks;
    int y0, ny; /* this rank's rows of the spectrum */
    int z0, nz; /* its planes of space */
    size_t row; /* numbers from one row to the next */
    struct ft_grid space;
    struct ft_grid spectrum;
    struct ft_grid forth; /* outgoing, to the spectrum: y slowest */
    struct ft_grid back;  /* outgoing, to space: z slowest */
    struct parcels to_spectrum;
    struct parcels to_space;
    struct ft_grid *parts; /* what arrived */
    struct ft_roots roots;
    struct ft_factors factors;
    struct ft_complex sums[FT_MAX_ITERATIONS];
};

static int rows(const struct ft *s, int rank)
{
    return first_of(s->problem->ny, rank + 1, s->ranks) - first_of(s->problem->ny, rank, s->ranks);
}

static int planes(const struct ft *s, int rank)
{
    return first_of(s->problem->nz, rank + 1, s->ranks) - first_of(s->problem->nz, rank, s->ranks);
}

static size_t row_of(const struct ft_class *problem)
{
    return (size_t)problem->nx + FT_ROW_PADDING;
}

static size_t outgoing_bytes(const struct job *job)
{
    const struct ft_class *problem = &ft_classes[job->problem_class];
    const int rows_most = (problem->ny + job->ranks - 1) / job->ranks;
    const int planes_most = (problem->nz + job->ranks - 1) / job->ranks;
    const size_t forth = (size_t)problem->ny * (size_t)planes_most;
    const size_t back = (size_t)problem->nz * (size_t)rows_most;
    return (forth > back ? forth : back) * row_of(problem) * sizeof(struct ft_complex);
}

static int ranks_max(enum problem_class problem_class)
{
    const struct ft_class *problem = &ft_classes[problem_class];
    return problem->ny < problem->nz ? problem->ny : problem->nz;
}

static double operations(enum problem_class problem_class)
{
    return ft_operation_count(&ft_classes[problem_class]);
}

/* Grids with y or z slowest, at `values`. */
static struct ft_grid by_y(const struct ft *s, int ny, int nz, void *values)
{
    return (struct ft_grid){s->problem->nx, ny, nz, (size_t)nz * s->row, s->row, values};
}

static struct ft_grid by_z(const struct ft *s, int ny, int nz, void *values)
{
    return (struct ft_grid){s->problem->nx, ny, nz, s->row, (size_t)ny * s->row, values};
}

/* Computes position and length of each rank's parcels, in both directions. */
static void address_parcels(struct ft *s)
{
    const size_t row = s->row * sizeof(struct ft_complex);
    for (int r = 0; r < s->ranks; r++) {
        const size_t ny = (size_t)rows(s, r);
        const size_t nz = (size_t)planes(s, r);
        s->to_spectrum.send_at[r] = (size_t)first_of(s->problem->ny, r, s->ranks) * (size_t)s->nz * row;
        s->to_spectrum.send[r] = ny * (size_t)s->nz * row;
        s->to_spectrum.take_at[r] = (size_t)s->y0 * nz * row;
        s->to_spectrum.take[r] = (size_t)s->ny * nz * row;
        s->to_space.send_at[r] = (size_t)first_of(s->problem->nz, r, s->ranks) * (size_t)s->ny * row;
        s->to_space.send[r] = nz * (size_t)s->ny * row;
        s->to_space.take_at[r] = (size_t)s->z0 * ny * row;
        s->to_space.take[r] = (size_t)s->nz * ny * row;
    }
    s->to_spectrum.even = s->to_space.even =
        s->problem->ny % s->ranks == 0 && s->problem->nz % s->ranks == 0;
}

/* Computes the spectrum, all from the beginning. */
static void start(struct rank *rank, struct ft *s)
{
    ft_make_roots(&s->roots);
    for (int z = 0; z < s->nz; z++)
        for (int y = 0; y < s->problem->ny; y++)
            ft_draw_row(s->problem, y, s->z0 + z, ft_row(&s->space, y, z));
    ft_along_x(&s->roots, FT_FORWARD, &s->space);
    ft_along_y(&s->roots, FT_FORWARD, &s->space, 1, &s->forth);
    exchange(rank, &s->to_spectrum);
    for (int r = 0; r < s->ranks; r++)
        s->parts[r] = by_y(s, s->ny, planes(s, r), s->to_spectrum.arrived[r]);
    ft_along_z(&s->roots, FT_FORWARD, NULL, s->parts, s->ranks, &s->spectrum);
    exchange_is_over(rank);
}

/* Computes u at time t. */
static void evolve(struct rank *rank, struct ft *s, int t)
{
    double factor[FT_MAX_EXTENT];
    ft_decay(s->problem->nx, t, s->factors.x);
    ft_decay(s->problem->nz, t, s->factors.z);
    ft_decay(s->problem->ny, t, factor);
    for (int y = 0; y < s->ny; y++)
        s->factors.y[y] = factor[s->y0 + y];
    ft_along_z(&s->roots, FT_INVERSE, &s->factors, &s->spectrum, 1, &s->back);
    exchange(rank, &s->to_space);
    for (int r = 0; r < s->ranks; r++)
        s->parts[r] = by_z(s, rows(s, r), s->nz, s->to_space.arrived[r]);
    ft_along_y(&s->roots, FT_INVERSE, s->parts, s->ranks, &s->space);
    exchange_is_over(rank);
    ft_along_x(&s->roots, FT_INVERSE, &s->space);
}

/* The sum of prescribed points of u.  Also divides by n, which the transform left out. */
static struct ft_complex checksum(struct rank *rank, const struct ft *s)
{
    const int nx = s->problem->nx;
    const int ny = s->problem->ny;
    const int nz = s->problem->nz;
    const double n = (double)nx * ny * nz;
    double mine[2] = {0.0, 0.0};
    double sum[2];

    for (int j = 1; j <= FT_CHECKSUM_POINTS; j++) {
        const int z = 5 * j % nz - s->z0;
        if (z < 0 || z >= s->nz)
            continue;
        const struct ft_complex *point = ft_row(&s->space, 3 * j % ny, z) + j % nx;
        mine[0] += point->re;
        mine[1] += point->im;
    }
    all_sum(rank, mine, sum, 2, NUMBER_F64);
    return (struct ft_complex){sum[0] / n, sum[1] / n};
}

static void *prepare(struct rank *rank)
{
    struct ft *s = fresh(1, sizeof *s);
    const struct ft_class *problem = &ft_classes[rank->job->problem_class];
    s->problem = problem;
    s->ranks = rank->job->ranks;
    s->row = row_of(problem);
    s->y0 = first_of(problem->ny, rank->me, s->ranks);
    s->z0 = first_of(problem->nz, rank->me, s->ranks);
    s->ny = rows(s, rank->me);
    s->nz = planes(s, rank->me);
    void *outgoing = rank->ways->outgoing(rank, outgoing_bytes(rank->job));
    void *space = fresh((size_t)problem->ny * (size_t)s->nz * s->row, sizeof(struct ft_complex));
    void *spectrum = fresh((size_t)s->ny * (size_t)problem->nz * s->row, sizeof(struct ft_complex));
    s->space = by_z(s, problem->ny, s->nz, space);
    s->spectrum = by_y(s, s->ny, problem->nz, spectrum);
    s->forth = by_y(s, problem->ny, s->nz, outgoing);
    s->back = by_z(s, s->ny, problem->nz, outgoing);
    s->to_spectrum = make_parcels(s->ranks);
    s->to_space = make_parcels(s->ranks);
    s->parts = fresh((size_t)s->ranks, sizeof *s->parts);
    address_parcels(s);
    start(rank, s);
    evolve(rank, s, 1);
    return s;
}

static void repeat(struct rank *rank, void *state)
{
    struct ft *s = state;
    start(rank, s);
    for (int t = 1; t <= s->problem->iterations; t++) {
        evolve(rank, s, t);
        s->sums[t - 1] = checksum(rank, s);
    }
}

static bool is_right(struct rank *rank, void *state)
{
    const struct ft *s = state;
    return ft_checksums_agree(s->sums, ft_reference[rank->job->problem_class], s->problem->iterations);
}

const struct kernel_program kernel_ft = {"ft", outgoing_bytes, ranks_max, operations, prepare, repeat, is_right};
