/*
 * NAS kernel EP by ranks: each tallies batches of its own, and the sums are
 * added at the end.  Ranks hardly ever wait for each other: EP is the opposite
 * extreme of FT and IS.
 *
 * See nas/ep.c for problem, method and source.
 */
#include "team/kernels/kernel.h"

#include "nas/ep_problem.h"

#include <math.h>

/* The sums, and the counts as numbers, which are exact below 2^53. */
enum { SUM_X, SUM_Y, SUM_COUNTS, SUMS = SUM_COUNTS + EP_ANNULI };

struct ep {
    int first; /* batches of this rank: from here */
    int end;   /* to before this */
    double *uniform;
    double sums[SUMS]; /* of all ranks */
};

static int batches_of(enum problem_class problem_class)
{
    return 1 << (ep_classes[problem_class].m - EP_BATCH_LOG2);
}

static size_t outgoing_bytes(const struct job *job)
{
    (void)job;
    return SUMS * sizeof(double);
}

static int ranks_max(enum problem_class problem_class)
{
    return batches_of(problem_class);
}

static double operations(enum problem_class problem_class)
{
    return ldexp(1.0, ep_classes[problem_class].m + 1);
}

static void *prepare(struct rank *rank)
{
    const int batches = batches_of(rank->job->problem_class);
    struct ep *ep = fresh(1, sizeof *ep);
    struct tally tally = {0};
    ep->first = first_of(batches, rank->me, rank->job->ranks);
    ep->end = first_of(batches, rank->me + 1, rank->job->ranks);
    ep->uniform = fresh(EP_BATCH_NUMBERS, sizeof *ep->uniform);
    tally_batch(ep->first, ep->uniform, &tally);
    return ep;
}

static void repeat(struct rank *rank, void *state)
{
    struct ep *ep = state;
    struct tally tally = {0};
    double mine[SUMS] = {0};
    for (int batch = ep->first; batch < ep->end; batch++)
        tally_batch(batch, ep->uniform, &tally);
    mine[SUM_X] = tally.sx;
    mine[SUM_Y] = tally.sy;
    for (int l = 0; l < EP_ANNULI; l++)
        mine[SUM_COUNTS + l] = (double)tally.count[l];
    all_sum(rank, mine, ep->sums, SUMS, NUMBER_F64);
}

static bool agrees(double value, double reference)
{
    return fabs(value - reference) <= EP_TOLERANCE * fabs(reference);
}

static bool is_right(struct rank *rank, void *state)
{
    const struct ep *ep = state;
    const struct ep_class *problem = &ep_classes[rank->job->problem_class];
    return agrees(ep->sums[SUM_X], problem->sx) && agrees(ep->sums[SUM_Y], problem->sy);
}

const struct kernel_program kernel_ep = {"ep", outgoing_bytes, ranks_max, operations, prepare, repeat, is_right};
