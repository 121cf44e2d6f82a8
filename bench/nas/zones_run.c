/*
 * The frame of the multi-zone benchmarks: set up, steps, verification.  See zones_run.h.
 */
#include "nas/zones_run.h"

#include "common/team.h"
#include "common/timer.h"

#include <omp.h>

#define TOLERANCE 1e-8

/* Data shared by all threads of the outer team. */
struct run {
    const struct zones_solver *solver;
    const struct zones_class *problem;
    struct zones *zones;
    int team[ZONES_MAX];                             /* size of each outer thread's inner team */
    int threads;                                     /* that really took part */
    double start;                                    /* of set-up, then of the timed section */
    double setup_seconds;
    double seconds;
    double sums[ZONES_MAX][ZONES_VALUES];            /* of each zone, for verification */
};

void zones_shape(const struct zones_class *problem, int *outer, int *inner)
{
    const int zones = problem->cut.zones[0] * problem->cut.zones[1];
    const int threads = omp_get_max_threads();
    /* An outer thread without a zone would have nothing to do. */
    *outer = threads < zones ? threads : zones;
    *inner = 1;
    /* The size of inner teams is known only to the threads of an outer team. */
    if (omp_get_max_active_levels() > 1) {
#pragma omp parallel num_threads(*outer)
#pragma omp single
        *inner = omp_get_max_threads();
    }
}

static struct flow flow_of(const struct run *run, const struct zone *zone)
{
    double spacing[FLOW_DIRECTIONS];
    for (int d = 0; d < FLOW_DIRECTIONS; d++) {
        const int cuts = d < 2 ? run->zones->cut.zones[d] : 1;
        spacing[d] = run->solver->spacing_of_zone ? 1.0 / (zone->extent[d] - 1.0)
                                                  : cuts / (run->zones->cut.points[d] - 1.0);
    }
    struct flow flow = make_flow(zone->extent, spacing, run->problem->dt);
    if (run->solver->prepare != NULL)
        run->solver->prepare(&flow);
    return flow;
}

static void renew_residual(const struct flow *flow)
{
#pragma omp parallel
    flow_residual(flow);
}

/* The zones of the calling outer thread: the first from this one on, or NULL. */
static struct zone *next_own(const struct run *run, int *at)
{
    const int self = omp_get_thread_num();
    while (*at < run->zones->count) {
        struct zone *zone = &run->zones->zone[(*at)++];
        if (zone->owner == self)
            return zone;
    }
    return NULL;
}

static void set_up(const struct run *run)
{
    int at = 0;
    for (struct zone *zone; (zone = next_own(run, &at)) != NULL;)
        zone->flow = flow_of(run, zone);
}

static void restart(const struct run *run)
{
    int at = 0;
    for (struct zone *zone; (zone = next_own(run, &at)) != NULL;) {
        flow_start(&zone->flow);
        renew_residual(&zone->flow);
    }
}

static void exchange(const struct run *run)
{
    int at = 0;
#pragma omp barrier
    for (struct zone *zone; (zone = next_own(run, &at)) != NULL;) {
#pragma omp parallel
        zones_take_sides(run->zones, zone);
    }
#pragma omp barrier
}

/* One time step of all zones of the calling outer thread. */
static void advance(const struct run *run)
{
    int at = 0;
    exchange(run);
    for (struct zone *zone; (zone = next_own(run, &at)) != NULL;)
        for (int phase = 0; run->solver->phases[phase] != NULL; phase++) {
#pragma omp parallel
            run->solver->phases[phase](&zone->flow);
        }
}

static void measure_zones(struct run *run)
{
    int at = 0;
    for (struct zone *zone; (zone = next_own(run, &at)) != NULL;) {
        double *sums = run->sums[zone - run->zones->zone];
        renew_residual(&zone->flow);
        flow_residual_norms(&zone->flow, sums);
        flow_error_norms(&zone->flow, run->solver->border_in_error, sums + FLOW_VARIABLES);
        if (run->solver->integral != NULL)
            sums[ZONES_VALUES - 1] = run->solver->integral(&zone->flow);
    }
}

/* Work of each thread of the outer team. */
static void work(struct run *run)
{
    const int self = omp_get_thread_num();
    omp_set_num_threads(run->team[self]);
    const int team = team_size();
#pragma omp atomic
    run->threads += team;

    /* With one untimed step to warm caches and page tables. */
    set_up(run);
    restart(run);
    advance(run);
    /* The first step reads its neighbours' values at the start, so all threads must have
     * restarted. */
    restart(run);
#pragma omp barrier
#pragma omp single
    {
        const double now = wall_seconds();
        run->setup_seconds = now - run->start;
        run->start = now;
    }
    for (int step = 0; step < run->problem->steps; step++)
        advance(run);
#pragma omp barrier
#pragma omp single
    run->seconds = wall_seconds() - run->start;
    measure_zones(run);
}

static double operations_of(const struct run *run)
{
    const double *factors = run->solver->operations;
    double sum = 0.0;
    for (int i = 0; i < run->zones->count; i++) {
        const int *n = run->zones->zone[i].extent;
        const double x = n[0];
        const double y = n[1];
        const double z = n[2];
        sum += factors[0] * x * y * z + factors[1] * (x * y + x * z + y * z) / 3.0 + factors[2] * (x + y + z) / 3.0 +
               factors[3];
    }
    return sum * run->problem->steps;
}

static size_t gather_values(const struct run *run, struct bench_value values[ZONES_VALUES])
{
    static const char *const names[ZONES_VALUES] = {"res1", "res2", "res3", "res4", "res5", "err1",
                                                    "err2", "err3", "err4", "err5", "surf"};
    for (int v = 0; v < ZONES_VALUES; v++) {
        double sum = 0.0;
        for (int i = 0; i < run->zones->count; i++)
            sum += run->sums[i][v];
        values[v] = (struct bench_value){names[v], sum, 0.0};
    }
    for (int m = 0; m < FLOW_VARIABLES; m++) {
        values[m].reference = run->problem->residual[m];
        values[FLOW_VARIABLES + m].reference = run->problem->error[m];
    }
    values[ZONES_VALUES - 1].reference = run->problem->integral;
    return run->solver->integral == NULL ? ZONES_VALUES - 1 : ZONES_VALUES;
}

void zones_solve(const struct zones_solver *solver, const struct zones_class *problem, struct bench_report *report,
                 struct bench_value values[ZONES_VALUES])
{
    static struct zones zones;
    static struct run run;
    run = (struct run){.solver = solver, .problem = problem, .zones = &zones, .start = wall_seconds()};
    int outer;
    int inner;
    zones_shape(problem, &outer, &inner);
    zones_lay_out(&zones, &problem->cut);
#pragma omp parallel num_threads(outer)
    {
        /* The runtime may give fewer threads than requested. */
#pragma omp single
        {
            outer = omp_get_num_threads();
            zones_deal(&zones, outer);
            zones_size_teams(&zones, outer, outer * inner, run.team);
        }
        work(&run);
    }
    report->iterations = problem->steps;
    report->threads = run.threads;
    report->outer = outer;
    report->inner = inner;
    report->setup_seconds = run.setup_seconds;
    report->seconds = run.seconds;
    report->mops = 1e-6 * operations_of(&run) / run.seconds;
    report->value_count = gather_values(&run, values);
    report->values = values;
    report->verified = values_agree(values, report->value_count, TOLERANCE);
}
