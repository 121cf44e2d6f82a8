/*
 * NAS kernel MG by ranks: each computes a slab of planes of every grid, with the operators of nas/mg_grid.c.
 *
 * Before an operator, a rank gets the planes of others that the operator reads: one beside each end of its
 * slab, or, between two grids, those around its own planes of the other grid.  All ranks know all slabs, so
 * each knows what the others need.  On coarse grids some ranks have no plane and wait: MG shows both large
 * exchanges and short ones.  Grids take the address space of the whole cube; only a rank's planes, and
 * those that it gets, take memory.
 *
 * See nas/mg.c for problem, method and source.
 */
#include "team/kernels/kernel.h"

#include "nas/mg_charges.h"
#include "nas/mg_problem.h"

#include <math.h>
#include <string.h>

/* Planes, from `first` to before `end`; numbers wrap at the sides of the cube. */
struct planes {
    int first;
    int end;
};

/* What an operator reads of its source, for the planes that it computes. */
enum reach {
    REACH_BESIDE, /* of the same grid: one plane more at each end */
    REACH_FINER,  /* of the next finer grid: around every other plane */
    REACH_COARSER /* of the next coarser grid: on both sides */
};

struct mg {
    const struct mg_class *problem;
    int top;
    struct mg_grid u[MG_MAX_LEVELS];
    struct mg_grid r[MG_MAX_LEVELS];
    struct mg_grid v;
    unsigned char *outgoing;
    struct parcels parcels;
    double norm;
};

static struct planes slab(int n, int rank, int ranks)
{
    return (struct planes){first_of(n, rank, ranks), first_of(n, rank + 1, ranks)};
}

/* The planes of the source, of n planes, that a rank reads. */
static struct planes needed(enum reach reach, int n, int rank, int ranks)
{
    const int target = reach == REACH_FINER ? n / 2 : reach == REACH_COARSER ? 2 * n : n;
    const struct planes own = slab(target, rank, ranks);
    struct planes found = {0, 0};
    if (own.first == own.end)
        return found;
    switch (reach) {
    case REACH_BESIDE: found = (struct planes){own.first - 1, own.end + 1}; break;
    case REACH_FINER: found = (struct planes){2 * own.first, 2 * own.end + 1}; break;
    case REACH_COARSER:
        /* An odd plane lies on one of the coarser grid, an even one between two. */
        found = (struct planes){own.first % 2 == 0 ? own.first / 2 - 1 : own.first / 2, (own.end - 1) / 2 + 1};
        break;
    }
    return found.end - found.first < n ? found : (struct planes){0, n};
}

static bool has(struct planes planes, int plane)
{
    return plane >= planes.first && plane < planes.end;
}

/* Number of planes that `to` needs of those that `from` has.  With a grid they are copied to `place` (pack) or from it. */
static int moved(enum reach reach, int n, int from, int to, int ranks, const struct mg_grid *grid, double *place, bool pack)
{
    const struct planes wanted = needed(reach, n, to, ranks);
    const struct planes there = slab(n, from, ranks);
    int count = 0;
    for (int i = wanted.first; i < wanted.end; i++) {
        const int plane = (i + n) % n;
        if (from == to || !has(there, plane))
            continue;
        if (grid != NULL) {
            double *const own = grid->values + (size_t)plane * grid->plane_stride;
            double *const other = place + (size_t)count * grid->plane_stride;
            memcpy(pack ? other : own, pack ? own : other, grid->plane_stride * sizeof *own);
        }
        count++;
    }
    return count;
}

/* The planes that a rank sends before an operator. */
static int sent(enum reach reach, int n, int from, int ranks)
{
    int count = 0;
    for (int to = 0; to < ranks; to++)
        count += moved(reach, n, from, to, ranks, NULL, NULL, false);
    return count;
}

static size_t plane_bytes(int n)
{
    return (size_t)n * ((size_t)n + 4) * sizeof(double);
}

static size_t outgoing_bytes(const struct job *job)
{
    const int levels = mg_classes[job->problem_class].levels;
    size_t most = 0;
    for (int level = 0; level < levels; level++)
        for (int rank = 0; rank < job->ranks; rank++)
            for (int reach = REACH_BESIDE; reach <= REACH_COARSER; reach++) {
                /* The finest grid is not read by a finer one, nor the coarsest by a coarser one. */
                if ((reach == REACH_COARSER && level == levels - 1) || (reach == REACH_FINER && level == 0))
                    continue;
                const int n = 2 << level;
                const size_t bytes = (size_t)sent((enum reach)reach, n, rank, job->ranks) * plane_bytes(n);
                most = bytes > most ? bytes : most;
            }
    return most > 0 ? most : sizeof(double);
}

static int ranks_max(enum problem_class problem_class)
{
    return 1 << mg_classes[problem_class].levels;
}

static double operations(enum problem_class problem_class)
{
    const struct mg_class *problem = &mg_classes[problem_class];
    return MG_OPERATIONS * problem->iterations * ldexp(1.0, 3 * problem->levels);
}

/* Gets the planes of a grid that an operator will read. */
static void get(struct rank *rank, struct mg *mg, enum reach reach, const struct mg_grid *grid)
{
    const int ranks = rank->job->ranks;
    const size_t bytes = grid->plane_stride * sizeof(double);
    struct parcels *parcels = &mg->parcels;
    if (ranks == 1)
        return;
    size_t at = 0;
    for (int other = 0; other < ranks; other++) {
        const int count =
            moved(reach, grid->n, rank->me, other, ranks, grid, (double *)(void *)(mg->outgoing + at), true);
        parcels->send_at[other] = at;
        parcels->send[other] = (size_t)count * bytes;
        at += parcels->send[other];
        parcels->take[other] = (size_t)moved(reach, grid->n, other, rank->me, ranks, NULL, NULL, false) * bytes;
        /* In the other's outgoing memory, behind what ranks before this one get. */
        parcels->take_at[other] = 0;
        for (int before = 0; before < rank->me; before++)
            parcels->take_at[other] += (size_t)moved(reach, grid->n, other, before, ranks, NULL, NULL, false) * bytes;
    }
    exchange(rank, parcels);
    for (int other = 0; other < ranks; other++)
        moved(reach, grid->n, other, rank->me, ranks, grid, (double *)(void *)parcels->arrived[other], false);
    exchange_is_over(rank);
}

static void residual(struct rank *rank, struct mg *mg, int level, const struct mg_grid *v)
{
    get(rank, mg, REACH_BESIDE, &mg->u[level]);
    mg_residual(&mg_laplacian, &mg->u[level], v, &mg->r[level]);
}

static void smooth(struct rank *rank, struct mg *mg, int level)
{
    get(rank, mg, REACH_BESIDE, &mg->r[level]);
    mg_smooth(mg->problem->smoother, &mg->r[level], &mg->u[level]);
}

/* One iteration: corrects u by a V-cycle for the residual r, then renews r. */
static void iterate(struct rank *rank, struct mg *mg)
{
    const int top = mg->top;
    for (int level = top; level > 0; level--) {
        get(rank, mg, REACH_FINER, &mg->r[level]);
        mg_restrict(&mg->r[level], &mg->r[level - 1]);
    }
    mg_clear(&mg->u[0]);
    smooth(rank, mg, 0);
    for (int level = 1; level <= top; level++) {
        get(rank, mg, REACH_COARSER, &mg->u[level - 1]);
        mg_prolong(&mg->u[level - 1], &mg->u[level], level < top ? MG_SET : MG_ADD);
        residual(rank, mg, level, level < top ? &mg->r[level] : &mg->v);
        smooth(rank, mg, level);
    }
    residual(rank, mg, top, &mg->v);
}

static double norm(struct rank *rank, const struct mg_grid *grid)
{
    const double mine = mg_square_sum(grid);
    double all = 0.0;
    all_sum(rank, &mine, &all, 1, NUMBER_F64);
    return sqrt(all / ((double)grid->n * grid->n * grid->n));
}

static void *prepare(struct rank *rank)
{
    const int ranks = rank->job->ranks;
    struct mg *mg = fresh(1, sizeof *mg);
    mg->problem = &mg_classes[rank->job->problem_class];
    mg->top = mg->problem->levels - 1;
    for (int level = 0; level <= mg->top; level++) {
        const struct planes own = slab(2 << level, rank->me, ranks);
        mg->u[level] = make_mg_part(2 << level, own.first, own.end);
        mg->r[level] = make_mg_part(2 << level, own.first, own.end);
        if (level == mg->top)
            mg->v = make_mg_part(2 << level, own.first, own.end);
    }
    place_mg_charges(&mg->v);
    mg->outgoing = rank->ways->outgoing(rank, outgoing_bytes(rank->job));
    mg->parcels = make_parcels(ranks);
    residual(rank, mg, mg->top, &mg->v);
    iterate(rank, mg);
    return mg;
}

/* As in NPB, the first residual is timed too, and its norm. */
static void repeat(struct rank *rank, void *state)
{
    struct mg *mg = state;
    mg_clear(&mg->u[mg->top]);
    residual(rank, mg, mg->top, &mg->v);
    (void)norm(rank, &mg->r[mg->top]);
    for (int i = 0; i < mg->problem->iterations; i++)
        iterate(rank, mg);
    mg->norm = norm(rank, &mg->r[mg->top]);
}

static bool is_right(struct rank *rank, void *state)
{
    const struct mg *mg = state;
    (void)rank;
    return fabs(mg->norm - mg->problem->norm) <= MG_TOLERANCE * fabs(mg->problem->norm);
}

const struct kernel_program kernel_mg = {"mg", outgoing_bytes, ranks_max, operations, prepare, repeat, is_right};
