/*
 * Nested STREAM triad: memory bandwidth of several teams at once.
 *
 * Problem.  Y outer threads each open a team of Z.  Every team has three arrays
 * of its own and computes
 *
 *     a[i] = b[i] + s c[i]
 *
 * over them.  How much memory bandwidth do all teams together reach?  That
 * depends on where the threads run and where the arrays lie; with teams that
 * wander or overlap it can be a fraction of what the machine has.
 *
 * Method.  All teams start each repetition at a common barrier.  A repetition
 * opens its teams anew, as a program with nested loops does, and that is part
 * of the time.  Two figures come of it, both of 24 bytes an element:
 *
 *     sum   every team's own rate, added up: what the published measurements
 *           report, and too much if teams ran one after the other;
 *     wall  all bytes, over the time from the first team's start to the last
 *           one's end: what a program that waits for all teams would see.
 *
 * Memory.  --init team: every team writes to its arrays first, with the loop
 * that computes.  --init master: its master alone does, so that the arrays lie
 * near the master, and only a team that runs near its master finds them there.
 *
 * Verification.  s changes in each repetition; all of a must be exactly what
 * the last one makes of b and c, which differ from element to element and from
 * team to team in ways that double precision holds exactly.
 *
 * Source.  D. Schmidl, C. Terboven, D. an Mey and M. Buecker, "Binding Nested
 * OpenMP Programs on Hierarchical Memory Architectures", IWOMP 2010, which
 * describes the nested form; J. D. McCalpin's STREAM for the triad.
 */
#include "common/memory.h"
#include "common/output.h"
#include "common/series.h"
#include "common/timer.h"
#include "nested/arguments.h"
#include "nested/teams.h"

#include <omp.h>
#include <stdio.h>

#define ARRAYS 3
#define BYTES_PER_ELEMENT ((double)(ARRAYS * sizeof(double)))

struct stream {
    const char *program;
    struct team_shape shape;
    long long init;
    long long elements; /* of an array */
    long long repetitions;
};

struct arrays {
    double *a;
    double *b;
    double *c;
};

/* What b and c hold: small whole numbers. */
static double b_value(int team, long long i)
{
    return (double)(team + 1 + i % 1021);
}

static double c_value(int team, long long i)
{
    return (double)(team + 2 + i % 509);
}

/* The scalar of a repetition. */
static double scalar(long long repetition)
{
    return (double)(repetition + 2);
}

static void initialise_alone(const struct arrays *arrays, int team, long long elements)
{
    for (long long i = 0; i < elements; i++) {
        arrays->a[i] = 0.0;
        arrays->b[i] = b_value(team, i);
        arrays->c[i] = c_value(team, i);
    }
}

static void initialise_together(const struct arrays *arrays, int team, int threads,
                                long long elements)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long long i = 0; i < elements; i++) {
        arrays->a[i] = 0.0;
        arrays->b[i] = b_value(team, i);
        arrays->c[i] = c_value(team, i);
    }
}

static void triad(const struct arrays *arrays, int threads, long long elements, double s)
{
    double *restrict a = arrays->a;
    const double *restrict b = arrays->b;
    const double *restrict c = arrays->c;

#pragma omp parallel for schedule(static) num_threads(threads)
    for (long long i = 0; i < elements; i++)
        a[i] = b[i] + s * c[i];
}

/* Number of elements with wrong values. */
static long long count_wrong(const struct arrays *arrays, int team, int threads,
                             long long elements, double s)
{
    long long wrong = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : wrong)
    for (long long i = 0; i < elements; i++)
        if (arrays->a[i] != b_value(team, i) + s * c_value(team, i))
            wrong++;
    return wrong;
}

/* Runs all repetitions; fills in spans[repetition * Y + team]; returns the number of
 * wrong elements. */
static long long measure(const struct stream *stream, struct span *spans, double *setup_seconds)
{
    const size_t elements = (size_t)stream->elements;
    const int threads = stream->shape.inner;
    const double setup_start = wall_seconds();
    long long wrong = 0;

#pragma omp parallel num_threads(stream->shape.outer) reduction(+ : wrong)
    {
        const int team = omp_get_thread_num();
        const struct arrays arrays = {
            .a = allocate_untouched(elements, sizeof(double)),
            .b = allocate_untouched(elements, sizeof(double)),
            .c = allocate_untouched(elements, sizeof(double)),
        };
        if (stream->init == TOUCHED_BY_MASTER)
            initialise_alone(&arrays, team, stream->elements);
        else
            initialise_together(&arrays, team, threads, stream->elements);

#pragma omp barrier
#pragma omp master
        *setup_seconds = wall_seconds() - setup_start;

        for (long long repetition = 0; repetition < stream->repetitions; repetition++) {
            struct span *span = &spans[repetition * stream->shape.outer + team];
#pragma omp barrier
            span->start = wall_seconds();
            triad(&arrays, threads, stream->elements, scalar(repetition));
            span->end = wall_seconds();
        }

        wrong += count_wrong(&arrays, team, threads, stream->elements,
                             scalar(stream->repetitions - 1));
        release(arrays.a, elements, sizeof(double));
        release(arrays.b, elements, sizeof(double));
        release(arrays.c, elements, sizeof(double));
    }
    return wrong;
}

/* Rates in 10^9 bytes a second, by repetition. */
struct rates {
    double *sum;
    double *wall;
    double **team; /* of each team */
};

static struct rates find_rates(const struct stream *stream, const struct span *spans)
{
    const size_t teams = (size_t)stream->shape.outer;
    const size_t repetitions = (size_t)stream->repetitions;
    const double giga_bytes = 1e-9 * BYTES_PER_ELEMENT * (double)stream->elements;
    const struct rates rates = {
        .sum = allocate_untouched(repetitions, sizeof(double)),
        .wall = allocate_untouched(repetitions, sizeof(double)),
        .team = allocate_untouched(teams, sizeof(double *)),
    };
    double *of_teams = allocate_untouched(teams * repetitions, sizeof(double));

    for (size_t team = 0; team < teams; team++)
        rates.team[team] = of_teams + team * repetitions;
    for (size_t repetition = 0; repetition < repetitions; repetition++) {
        const struct span *span = &spans[repetition * teams];
        for (size_t team = 0; team < teams; team++) {
            const double rate = giga_bytes / (span[team].end - span[team].start);
            rates.team[team][repetition] = rate;
            rates.sum[repetition] += rate;
        }
        rates.wall[repetition] = (double)teams * giga_bytes / wall_time(span, teams);
    }
    return rates;
}

static void print_json(const struct stream *stream, const struct rates *rates,
                       double setup_seconds, bool verified)
{
    const size_t count = (size_t)stream->repetitions;
    printf("{\"kernel\":\"%s\",\"outer\":%d,\"inner\":%d", stream->program, stream->shape.outer,
           stream->shape.inner);
    printf(",\"init\":\"%s\",\"elements\":%lld,\"repetitions\":%lld",
           first_touch_words[stream->init], stream->elements, stream->repetitions);
    printf(",\"setup_seconds\":%.6f,\"sum_gbs\":", setup_seconds);
    print_json_series(most(rates->sum, count), rates->sum, count);
    printf(",\"wall_gbs\":");
    print_json_series(most(rates->wall, count), rates->wall, count);
    printf(",\"teams\":[");
    for (int team = 0; team < stream->shape.outer; team++) {
        printf("%s{\"gbs\":", team == 0 ? "" : ",");
        print_json_series(most(rates->team[team], count), rates->team[team], count);
        printf("}");
    }
    printf("],\"verified\":%s}\n", verified ? "true" : "false");
}

static void print_words(const struct stream *stream, const struct rates *rates, bool verified)
{
    const size_t count = (size_t)stream->repetitions;
    printf(" %-28s %10s %10s\n", "GB/s", "best", "median");
    printf(" %-28s %10.2f %10.2f\n", "sum of the teams' rates", most(rates->sum, count),
           median(rates->sum, count));
    printf(" %-28s %10.2f %10.2f\n", "all bytes over wall time", most(rates->wall, count),
           median(rates->wall, count));
    for (int team = 0; team < stream->shape.outer; team++)
        printf(" team %-23d %10.2f %10.2f\n", team, most(rates->team[team], count),
               median(rates->team[team], count));
    printf("\n %s\n", verified ? "VERIFICATION SUCCESSFUL" : "VERIFICATION FAILED");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "nested_stream", "STREAM triad by nested teams: total memory bandwidth"};
    struct stream stream = {
        .program = program.name,
        .init = TOUCHED_BY_TEAM,
        .elements = 8 << 20,
        .repetitions = 10,
    };
    const struct nested_option options[] = {
        first_touch_option(&stream.init),
        {"--elements", "elements of each of a team's three arrays", NULL, 1, 1LL << 40,
         &stream.elements},
        {"--repetitions", "how often the triad is computed", NULL, 1, 100000,
         &stream.repetitions},
    };
    const struct nested_arguments arguments =
        parse_nested_arguments(&program, options, sizeof options / sizeof options[0], argc, argv);
    stream.shape = arguments.shape;

    const size_t samples = (size_t)stream.shape.outer * (size_t)stream.repetitions;
    require_memory(BYTES_PER_ELEMENT * (double)stream.elements * stream.shape.outer +
                   4.0 * sizeof(double) * (double)samples);
    if (!arguments.json) {
        printf("\n Nested STREAM triad, %d teams of %d, %lld elements an array, %lld repetitions,\n"
               " data first written by the %s\n\n",
               stream.shape.outer, stream.shape.inner, stream.elements, stream.repetitions,
               first_touch_words[stream.init]);
    }

    double setup_seconds = 0.0;
    struct span *spans = allocate_untouched(samples, sizeof *spans);
    start_teams(program.name, stream.shape);
    const bool verified = measure(&stream, spans, &setup_seconds) == 0;
    end_teams();

    const struct rates rates = find_rates(&stream, spans);
    if (arguments.json)
        print_json(&stream, &rates, setup_seconds, verified);
    else
        print_words(&stream, &rates, verified);
    return finish_output(verified);
}
