/*
 * Batches of Gaussian pairs.  See ep_problem.h and ep.c.
 */
#include "nas/ep_problem.h"

#include "common/random.h"

#include <math.h>

#define SEED UINT64_C(271828183)

const struct ep_class ep_classes[CLASS_COUNT] = {
    [CLASS_S] = {24, -3.247834652034740e+3, -6.958407078382297e+3},
    [CLASS_W] = {25, -2.863319731645753e+3, -6.320053679109499e+3},
    [CLASS_A] = {28, -4.295875165629892e+3, -1.580732573678431e+4},
    [CLASS_B] = {30, 4.033815542441498e+4, -2.660669192809235e+4},
    [CLASS_C] = {32, 4.764367927995374e+4, -8.084072988043731e+4},
};

void add_tally(struct tally *total, const struct tally *part)
{
    total->sx += part->sx;
    total->sy += part->sy;
    for (int l = 0; l < EP_ANNULI; l++)
        total->count[l] += part->count[l];
}

/*
 * The annulus of a pair, floor(max(|x|, |y|)).  The larger is chosen after
 * rounding down, between integers: compilers make that a conditional move,
 * whereas choosing between the doubles can become a branch that is mispredicted
 * every other time and doubles the run time.
 */
static int annulus(double x, double y)
{
    const int lx = (int)fabs(x);
    const int ly = (int)fabs(y);
    return lx > ly ? lx : ly;
}

/* Turns one batch of uniform pairs into Gaussian pairs and tallies them. */
static struct tally tally_pairs(const double *uniform)
{
    struct tally tally = {0};
    double sx = 0.0;
    double sy = 0.0;

    for (int i = 0; i < (1 << EP_BATCH_LOG2); i++) {
        const double x = 2.0 * uniform[2 * i] - 1.0;
        const double y = 2.0 * uniform[2 * i + 1] - 1.0;
        const double t = x * x + y * y;
        if (t <= 1.0) {
            const double scale = sqrt(-2.0 * log(t) / t);
            const double gx = x * scale;
            const double gy = y * scale;
            tally.count[annulus(gx, gy)]++;
            sx += gx;
            sy += gy;
        }
    }
    tally.sx = sx;
    tally.sy = sy;
    return tally;
}

void tally_batch(int64_t batch, double *uniform, struct tally *total)
{
    uint64_t seed = randlc_skip(SEED, RANDLC_MULTIPLIER, (uint64_t)batch * EP_BATCH_NUMBERS);
    vranlc(EP_BATCH_NUMBERS, &seed, RANDLC_MULTIPLIER, uniform);
    const struct tally part = tally_pairs(uniform);
    add_tally(total, &part);
}
