/*
 * Nested synchronisation benchmark: overhead of OpenMP constructs in inner teams.
 *
 * Problem.  Y outer threads each open a team of Z, and all teams synchronise at
 * once, each within itself.  How long does each construct take beyond the work in
 * it?  Threads of a team that share a cache do it in a fraction of the time of
 * threads on distant sockets.
 *
 * Method.  EPCC's: a construct is executed n times with a short delay in it, and
 * the same thread executes the delay alone n times as the reference;
 *
 *     overhead = (time of construct - time of reference) / n,
 *
 * in microseconds.  n is the power of two with which even the fastest team takes
 * --target-us.  The delay's length is determined once, outside of all teams, so
 * that all have the same.  All teams start each repetition together.  The median
 * of a team's reference is subtracted from its samples; a repetition then has an
 * average and a worst team, and the report has the median and the least of these
 * over the repetitions, and all samples.  An overhead below zero is noise, and
 * left as it is.
 *
 * The benchmark differs from EPCC's in one respect: constructs inside a region
 * are timed there, from when all members of all teams have arrived.  EPCC
 * includes the opening of the region.  At the outermost level its cost is
 * negligible, but with runtimes that create an inner team's threads each time
 * (libgomp) it takes longer than thousands of barriers and would hide them.
 *
 * Constructs.  parallel, for, parallel for, barrier, single, critical, lock,
 * atomic, reduction (of a parallel region).  n critical sections, locks and
 * atomics are shared out among the team.  Locks and atomics are each team's own,
 * but OpenMP has only one critical section of a name in a program: there all
 * teams wait for each other.
 *
 * Verification.  Every construct that excludes or adds up counts, and the counts
 * are exact.
 *
 * Source.  D. Schmidl, C. Terboven, D. an Mey and M. Buecker, "Binding Nested
 * OpenMP Programs on Hierarchical Memory Architectures", IWOMP 2010, for the
 * nested form; J. M. Bull, "Measuring Synchronisation and Scheduling Overheads in
 * OpenMP", EWOMP 1999, for the method and constructs.
 */
#include "common/memory.h"
#include "common/output.h"
#include "common/series.h"
#include "common/timer.h"
#include "nested/arguments.h"
#include "nested/delay.h"
#include "nested/teams.h"

#include <omp.h>
#include <stdio.h>

#define MOST_INNER_REPETITIONS (1LL << 30)
#define CALIBRATION_TRIALS 3 /* one may be long because something else ran */

/* Data shared by the constructs of one team; each on pages of its own. */
struct team {
    int threads;
    long long delay_length;
    struct gate *gate; /* of all teams */
    omp_lock_t lock;
    double count; /* how often something that excludes or adds up happened */
    double start; /* of what is timed */
    double end;
};

/* Executes a construct n times in a team; returns the seconds it took. */
typedef double execute(struct team *team, long long n);

/* Called outside of the team's regions: starts the clock in all teams at once. */
static void start_clock(struct team *team)
{
    pass_gate(team->gate);
    team->start = wall_seconds();
}

static double seconds_since_start(const struct team *team)
{
    return wall_seconds() - team->start;
}

/* The same, called by all members inside a region. */
static void start_clock_inside(struct team *team)
{
#pragma omp barrier
#pragma omp master
    pass_gate(team->gate);
#pragma omp barrier
#pragma omp master
    team->start = wall_seconds();
}

static void stop_clock_inside(struct team *team)
{
#pragma omp barrier
#pragma omp master
    team->end = wall_seconds();
}

/* The part of n that falls to the calling thread of a team. */
static long long share(long long n, int threads)
{
    return n / threads + (omp_get_thread_num() < n % threads ? 1 : 0);
}

static double delay_alone(struct team *team, long long n)
{
    start_clock(team);
    for (long long j = 0; j < n; j++)
        delay(team->delay_length);
    return seconds_since_start(team);
}

static double add_alone(struct team *team, long long n)
{
    double sum = 0.0;
    start_clock(team);
    for (long long j = 0; j < n; j++)
        sum += 1.0;
    team->count = sum; /* before the clock is read, lest the loop be moved behind */
    return seconds_since_start(team);
}

static double in_parallel(struct team *team, long long n)
{
    start_clock(team);
    for (long long j = 0; j < n; j++) {
#pragma omp parallel num_threads(team->threads)
        delay(team->delay_length);
    }
    return seconds_since_start(team);
}

static double in_for(struct team *team, long long n)
{
#pragma omp parallel num_threads(team->threads)
    {
        start_clock_inside(team);
        for (long long j = 0; j < n; j++) {
#pragma omp for schedule(static)
            for (int i = 0; i < team->threads; i++)
                delay(team->delay_length);
        }
        stop_clock_inside(team);
    }
    return team->end - team->start;
}

static double in_parallel_for(struct team *team, long long n)
{
    start_clock(team);
    for (long long j = 0; j < n; j++) {
#pragma omp parallel for schedule(static) num_threads(team->threads)
        for (int i = 0; i < team->threads; i++)
            delay(team->delay_length);
    }
    return seconds_since_start(team);
}

static double in_barrier(struct team *team, long long n)
{
#pragma omp parallel num_threads(team->threads)
    {
        start_clock_inside(team);
        for (long long j = 0; j < n; j++) {
            delay(team->delay_length);
#pragma omp barrier
        }
        stop_clock_inside(team);
    }
    return team->end - team->start;
}

static double in_single(struct team *team, long long n)
{
#pragma omp parallel num_threads(team->threads)
    {
        start_clock_inside(team);
        for (long long j = 0; j < n; j++) {
#pragma omp single
            {
                delay(team->delay_length);
                team->count += 1.0;
            }
        }
        stop_clock_inside(team);
    }
    return team->end - team->start;
}

static double in_critical(struct team *team, long long n)
{
#pragma omp parallel num_threads(team->threads)
    {
        const long long mine = share(n, team->threads);
        start_clock_inside(team);
        for (long long j = 0; j < mine; j++) {
#pragma omp critical
            {
                delay(team->delay_length);
                team->count += 1.0;
            }
        }
        stop_clock_inside(team);
    }
    return team->end - team->start;
}

static double in_lock(struct team *team, long long n)
{
#pragma omp parallel num_threads(team->threads)
    {
        const long long mine = share(n, team->threads);
        start_clock_inside(team);
        for (long long j = 0; j < mine; j++) {
            omp_set_lock(&team->lock);
            delay(team->delay_length);
            team->count += 1.0;
            omp_unset_lock(&team->lock);
        }
        stop_clock_inside(team);
    }
    return team->end - team->start;
}

static double in_atomic(struct team *team, long long n)
{
    double *count = &team->count;
#pragma omp parallel num_threads(team->threads)
    {
        const long long mine = share(n, team->threads);
        start_clock_inside(team);
        for (long long j = 0; j < mine; j++) {
#pragma omp atomic
            *count += 1.0;
        }
        stop_clock_inside(team);
    }
    return team->end - team->start;
}

static double in_reduction(struct team *team, long long n)
{
    double count = 0.0;
    start_clock(team);
    for (long long j = 0; j < n; j++) {
#pragma omp parallel num_threads(team->threads) reduction(+ : count)
        {
            delay(team->delay_length);
            count += 1.0;
        }
    }
    team->count = count;
    return seconds_since_start(team);
}

/* Expected count of n executions. */
enum counted { NOTHING, EACH_ONCE, EACH_BY_ALL };

struct construct {
    const char *name;
    execute *execute;
    execute *reference;
    enum counted counted;
};

static const struct construct constructs[] = {
    {"parallel", in_parallel, delay_alone, NOTHING},
    {"for", in_for, delay_alone, NOTHING},
    {"parallel_for", in_parallel_for, delay_alone, NOTHING},
    {"barrier", in_barrier, delay_alone, NOTHING},
    {"single", in_single, delay_alone, EACH_ONCE},
    {"critical", in_critical, delay_alone, EACH_ONCE},
    {"lock", in_lock, delay_alone, EACH_ONCE},
    {"atomic", in_atomic, add_alone, EACH_ONCE},
    {"reduction", in_reduction, delay_alone, EACH_BY_ALL},
};
enum { CONSTRUCTS = sizeof constructs / sizeof constructs[0] };

struct syncbench {
    const char *program;
    struct team_shape shape;
    long long repetitions;
    long long delay_ns;
    long long target_us;
    long long delay_length;
};

/* Result of one construct.  Microseconds for one execution. */
struct outcome {
    long long n;       /* executions in a repetition */
    double *reference; /* of each team */
    double *samples;   /* overheads, [team * repetitions + repetition] */
    long long wrong;   /* counts that are not what they must be */
};

/*
 * The power of two with which even the fastest team takes target_seconds.  All
 * outer threads call it, and all find the same.
 */
static long long calibrated(execute *function, struct team *team, double *seconds,
                            const struct syncbench *bench)
{
    const size_t teams = (size_t)bench->shape.outer;
    const double target_seconds = 1e-6 * (double)bench->target_us;
    long long n = 1;

    for (;;) {
        double trials[CALIBRATION_TRIALS];
        for (int i = 0; i < CALIBRATION_TRIALS; i++)
            trials[i] = function(team, n);
        seconds[omp_get_thread_num()] = least(trials, CALIBRATION_TRIALS);
#pragma omp barrier
        /* No thread writes again before all have read: functions begin at the gate. */
        if (least(seconds, teams) >= target_seconds || n >= MOST_INNER_REPETITIONS)
            return n;
        n *= 2;
    }
}

/* Measures one construct in all teams; called by all outer threads. */
static void measure(const struct syncbench *bench, const struct construct *construct,
                    struct team *team, double *seconds, struct outcome *outcome)
{
    const size_t repetitions = (size_t)bench->repetitions;
    double *samples = outcome->samples + (size_t)omp_get_thread_num() * repetitions;

    const long long reference_n = calibrated(construct->reference, team, seconds, bench);
    for (size_t i = 0; i < repetitions; i++)
        samples[i] = 1e6 * construct->reference(team, reference_n) / (double)reference_n;
    const double reference = median(samples, repetitions);
    outcome->reference[omp_get_thread_num()] = reference;

    const long long n = calibrated(construct->execute, team, seconds, bench);
    long long wrong = 0;
    for (size_t i = 0; i < repetitions; i++) {
        team->count = 0.0;
        samples[i] = 1e6 * construct->execute(team, n) / (double)n - reference;
        const long long by_each = construct->counted == EACH_BY_ALL ? team->threads : 1;
        if (construct->counted != NOTHING && team->count != (double)(n * by_each))
            wrong++;
    }
#pragma omp atomic
    outcome->wrong += wrong;
#pragma omp master
    outcome->n = n;
}

static void measure_all(const struct syncbench *bench, struct outcome outcomes[CONSTRUCTS])
{
    const size_t teams = (size_t)bench->shape.outer;
    double *seconds = allocate_untouched(teams, sizeof *seconds);
    struct gate gate = {.teams = bench->shape.outer};

    for (int i = 0; i < CONSTRUCTS; i++) {
        outcomes[i].reference = allocate_untouched(teams, sizeof(double));
        outcomes[i].samples =
            allocate_untouched(teams * (size_t)bench->repetitions, sizeof(double));
    }
#pragma omp parallel num_threads(bench->shape.outer)
    {
        struct team *team = allocate_untouched(1, sizeof *team);
        team->threads = bench->shape.inner;
        team->delay_length = bench->delay_length;
        team->gate = &gate;
        omp_init_lock(&team->lock);
        for (int i = 0; i < CONSTRUCTS; i++)
            measure(bench, &constructs[i], team, seconds, &outcomes[i]);
        omp_destroy_lock(&team->lock);
        release(team, 1, sizeof *team);
    }
    release(seconds, teams, sizeof *seconds);
}

/* The teams' average and the worst team's overhead, by repetition. */
static void over_teams(const struct syncbench *bench, const struct outcome *outcome,
                       double *average, double *worst)
{
    const size_t teams = (size_t)bench->shape.outer;
    const size_t repetitions = (size_t)bench->repetitions;
    double *of_teams = allocate_untouched(teams, sizeof *of_teams);

    for (size_t i = 0; i < repetitions; i++) {
        for (size_t team = 0; team < teams; team++)
            of_teams[team] = outcome->samples[team * repetitions + i];
        average[i] = mean(of_teams, teams);
        worst[i] = most(of_teams, teams);
    }
    release(of_teams, teams, sizeof *of_teams);
}

static void print_construct_json(const struct syncbench *bench, const struct construct *construct,
                                 const struct outcome *outcome, const double *average,
                                 const double *worst)
{
    const size_t count = (size_t)bench->repetitions;
    printf("{\"construct\":\"%s\",\"inner_repetitions\":%lld,\"average_us\":", construct->name,
           outcome->n);
    print_json_series(least(average, count), average, count);
    printf(",\"worst_us\":");
    print_json_series(least(worst, count), worst, count);
    printf(",\"teams\":[");
    for (int team = 0; team < bench->shape.outer; team++) {
        printf("%s{\"reference_us\":", team == 0 ? "" : ",");
        print_json_number(outcome->reference[team]);
        printf(",\"samples\":");
        print_json_samples(outcome->samples + (size_t)team * count, count);
        printf("}");
    }
    printf("]}");
}

static void print_construct_words(const struct syncbench *bench, const struct construct *construct,
                                  const struct outcome *outcome, const double *average,
                                  const double *worst)
{
    const size_t count = (size_t)bench->repetitions;
    printf(" %-14s %12lld %10.3f %10.3f %10.3f %10.3f\n", construct->name, outcome->n,
           median(average, count), least(average, count), median(worst, count),
           least(worst, count));
}

static void print_report(const struct syncbench *bench, const struct outcome outcomes[CONSTRUCTS],
                         bool verified, bool json)
{
    const size_t count = (size_t)bench->repetitions;
    double *average = allocate_untouched(count, sizeof *average);
    double *worst = allocate_untouched(count, sizeof *worst);

    if (json) {
        printf("{\"kernel\":\"%s\",\"outer\":%d,\"inner\":%d,\"repetitions\":%lld",
               bench->program, bench->shape.outer, bench->shape.inner, bench->repetitions);
        printf(",\"delay_ns\":%lld,\"delay_length\":%lld,\"constructs\":[", bench->delay_ns,
               bench->delay_length);
    } else {
        printf(" %-14s %12s %10s %10s %10s %10s\n", "overhead, us", "executions", "average",
               "its least", "worst", "its least");
    }
    for (int i = 0; i < CONSTRUCTS; i++) {
        over_teams(bench, &outcomes[i], average, worst);
        if (json) {
            printf("%s", i == 0 ? "" : ",");
            print_construct_json(bench, &constructs[i], &outcomes[i], average, worst);
        } else {
            print_construct_words(bench, &constructs[i], &outcomes[i], average, worst);
        }
    }
    if (json)
        printf("],\"verified\":%s}\n", verified ? "true" : "false");
    else
        printf("\n %s\n", verified ? "VERIFICATION SUCCESSFUL" : "VERIFICATION FAILED");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "nested_syncbench", "overhead of OpenMP constructs in nested teams"};
    struct syncbench bench = {
        .program = program.name,
        .repetitions = 20,
        .delay_ns = 100,
        .target_us = 1000,
    };
    const struct nested_option options[] = {
        {"--repetitions", "samples of each construct", NULL, 1, 100000, &bench.repetitions},
        {"--delay-ns", "work inside a construct, in nanoseconds", NULL, 0, 1000000,
         &bench.delay_ns},
        {"--target-us", "least duration of a sample, in microseconds", NULL, 1, 10000000,
         &bench.target_us},
    };
    const struct nested_arguments arguments =
        parse_nested_arguments(&program, options, sizeof options / sizeof options[0], argc, argv);
    bench.shape = arguments.shape;
    require_memory((double)CONSTRUCTS * sizeof(double) * bench.shape.outer *
                   (double)bench.repetitions);
    bench.delay_length = calibrated_delay((double)bench.delay_ns);
    if (!arguments.json) {
        printf("\n Nested synchronisation, %d teams of %d, %lld repetitions, delay %lld ns\n\n",
               bench.shape.outer, bench.shape.inner, bench.repetitions, bench.delay_ns);
    }

    struct outcome outcomes[CONSTRUCTS] = {0};
    start_teams(program.name, bench.shape);
    measure_all(&bench, outcomes);
    end_teams();

    bool verified = true;
    for (int i = 0; i < CONSTRUCTS; i++)
        if (outcomes[i].wrong != 0)
            verified = false;
    print_report(&bench, outcomes, verified, arguments.json);
    return finish_output(verified);
}
