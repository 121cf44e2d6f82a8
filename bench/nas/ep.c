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
#include "common/report.h"
#include "common/schedule.h"
#include "common/team.h"
#include "common/timer.h"
#include "nas/ep_problem.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#pragma omp declare reduction(add : struct tally : add_tally(&omp_out, &omp_in)) \
    initializer(omp_priv = (struct tally){0})

/* Tallies 2^m pairs with all threads; sets *seconds to the time this took. */
static struct tally tally_all(int m, double *seconds)
{
    const int64_t batches = INT64_C(1) << (m - EP_BATCH_LOG2);
    struct tally total = {0};
    double start = 0.0;

#pragma omp parallel
    {
        double *uniform = allocate_untouched(EP_BATCH_NUMBERS, sizeof *uniform);
        memset(uniform, 0xff, EP_BATCH_NUMBERS * sizeof *uniform); /* first touch */

#pragma omp barrier
#pragma omp master
        start = wall_seconds();

#pragma omp for schedule(LOOP_SCHEDULE) reduction(add : total)
        for (int64_t batch = 0; batch < batches; batch++)
            tally_batch(batch, uniform, &total);

#pragma omp master
        *seconds = wall_seconds() - start;

        release(uniform, EP_BATCH_NUMBERS, sizeof *uniform);
    }
    return total;
}

static void print_counts(const struct tally *tally)
{
    int64_t pairs = 0;
    for (int l = 0; l < EP_ANNULI; l++)
        pairs += tally->count[l];
    printf(" No. Gaussian Pairs = %lld\n Counts:\n", (long long)pairs);
    for (int l = 0; l < EP_ANNULI; l++)
        printf(" %2d %15lld\n", l, (long long)tally->count[l]);
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "ep", "NAS kernel EP: sums and counts of Gaussian pseudorandom pairs"};
    const double setup_start = wall_seconds();
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct ep_class *problem = &ep_classes[options.problem_class];
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
    report.verified = values_agree(values, report.value_count, EP_TOLERANCE);
    if (!options.json)
        print_counts(&tally);
    return finish_report(&report, options.json);
}
