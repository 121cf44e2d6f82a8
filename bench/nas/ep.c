/*
 * NAS kernel EP, "embarrassingly parallel".
 *
 * Problem.  Form 2^m pairs of uniform pseudorandom numbers, turn those that
 * fall inside the unit circle into pairs (X, Y) of independent Gaussian
 * deviates, and find the sums of all X and of all Y and how many pairs lie in
 * each square annulus l <= max(|X|, |Y|) < l + 1.
 *
 * Method.  Marsaglia's polar method: for (x, y) uniform in (-1, 1)^2 with
 * t = x^2 + y^2 <= 1,
 *
 *     X = x sqrt(-2 ln t / t),    Y = y sqrt(-2 ln t / t).
 *
 * The pairs are taken from one random stream, cut into batches of 2^16.  The
 * generator can jump to the start of any batch, so batches are independent and
 * are shared out among the threads; only the final sums are communicated.
 * Hence EP measures arithmetic alone, the upper limit of what a machine's
 * cores can do without memory traffic or synchronisation.
 *
 * Memory.  The only array is the batch of uniform numbers, one for each thread
 * (1 MiB).  Each thread maps and first writes its own, before the timing
 * starts, so that it lies on that thread's NUMA node.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel EP; class sizes, verification sums and operation
 * count (one for each uniform number) as published with NPB 2 and 3.
 */
#include "common/arguments.h"
#include "common/memory.h"
#include "common/random.h"
#include "common/report.h"
#include "common/team.h"
#include "common/timer.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SEED UINT64_C(271828183)
#define BATCH_LOG2 16
#define BATCH_PAIRS (1 << BATCH_LOG2)
#define ANNULI 10 /* the fixed stream has no deviate near 10 */
#define TOLERANCE 1e-8

struct ep_class {
    int m;     /* log2 of the number of pairs */
    double sx; /* reference sums */
    double sy;
};

static const struct ep_class classes[CLASS_COUNT] = {
    [CLASS_S] = {24, -3.247834652034740e+3, -6.958407078382297e+3},
    [CLASS_W] = {25, -2.863319731645753e+3, -6.320053679109499e+3},
    [CLASS_A] = {28, -4.295875165629892e+3, -1.580732573678431e+4},
    [CLASS_B] = {30, 4.033815542441498e+4, -2.660669192809235e+4},
    [CLASS_C] = {32, 4.764367927995374e+4, -8.084072988043731e+4},
};

/* What is known of a set of Gaussian pairs. */
struct tally {
    double sx;
    double sy;
    int64_t count[ANNULI];
};

static void add_tally(struct tally *total, const struct tally *part)
{
    total->sx += part->sx;
    total->sy += part->sy;
    for (int l = 0; l < ANNULI; l++)
        total->count[l] += part->count[l];
}

#pragma omp declare reduction(add : struct tally : add_tally(&omp_out, &omp_in)) \
    initializer(omp_priv = (struct tally){0})

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
static struct tally tally_batch(const double *uniform)
{
    struct tally tally = {0};
    double sx = 0.0;
    double sy = 0.0;

    for (int i = 0; i < BATCH_PAIRS; i++) {
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

/* Tallies 2^m pairs with all threads; sets *seconds to the time this took. */
static struct tally tally_all(int m, double *seconds)
{
    const int64_t batches = INT64_C(1) << (m - BATCH_LOG2);
    const size_t batch_numbers = 2 * (size_t)BATCH_PAIRS;
    struct tally total = {0};
    double start = 0.0;

#pragma omp parallel
    {
        double *uniform = allocate_untouched(batch_numbers, sizeof *uniform);
        memset(uniform, 0xff, batch_numbers * sizeof *uniform); /* first touch */

#pragma omp barrier
#pragma omp master
        start = wall_seconds();

#pragma omp for schedule(static) reduction(add : total)
        for (int64_t batch = 0; batch < batches; batch++) {
            uint64_t seed = randlc_skip(SEED, RANDLC_MULTIPLIER, (uint64_t)batch * batch_numbers);
            vranlc(batch_numbers, &seed, RANDLC_MULTIPLIER, uniform);
            const struct tally part = tally_batch(uniform);
            add_tally(&total, &part);
        }

#pragma omp master
        *seconds = wall_seconds() - start;

        release(uniform, batch_numbers, sizeof *uniform);
    }
    return total;
}

static void print_counts(const struct tally *tally)
{
    int64_t pairs = 0;
    for (int l = 0; l < ANNULI; l++)
        pairs += tally->count[l];
    printf(" No. Gaussian Pairs = %lld\n Counts:\n", (long long)pairs);
    for (int l = 0; l < ANNULI; l++)
        printf(" %2d %15lld\n", l, (long long)tally->count[l]);
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "ep", "NAS kernel EP: sums and counts of Gaussian pseudorandom pairs"};
    const double setup_start = wall_seconds();
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct ep_class *problem = &classes[options.problem_class];
    const double numbers = ldexp(1.0, problem->m + 1);

    struct bench_report report = {
        .kernel = "EP",
        .problem_class = options.problem_class,
        .size = {(long long)numbers},
        .threads = team_size(),
        .operation = "random numbers generated",
    };
    if (!options.json)
        print_heading(&report);

    const struct tally tally = tally_all(problem->m, &report.seconds);
    report.setup_seconds = wall_seconds() - setup_start - report.seconds;
    report.mops = 1e-6 * numbers / report.seconds;

    const struct bench_value values[] = {
        {"sx", tally.sx, problem->sx},
        {"sy", tally.sy, problem->sy},
    };
    report.values = values;
    report.value_count = sizeof values / sizeof values[0];
    report.verified = values_agree(values, report.value_count, TOLERANCE);
    if (!options.json)
        print_counts(&tally);
    return finish_report(&report, options.json);
}
