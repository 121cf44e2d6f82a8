/*
 * The frame of BT, SP and LU: set up, steps, verification.  See flow_run.h.
 */
#include "nas/flow_run.h"

#include "common/report.h"
#include "common/team.h"
#include "common/timer.h"

#define TOLERANCE 1e-8
#define VALUES_MAX (2 * FLOW_VARIABLES + 1)

/* One time step, from an up-to-date residual to the next one. */
static void advance(const struct flow_solver *solver, const struct flow *flow)
{
#pragma omp parallel
    {
        solver->solve(flow);
        flow_advance(flow, solver->factor);
        flow_residual(flow);
    }
}

static void restart(const struct flow *flow)
{
    flow_start(flow);
#pragma omp parallel
    flow_residual(flow);
}

static size_t gather_values(const struct flow_solver *solver, const struct flow_class *problem,
                            const struct flow *flow, struct bench_value values[VALUES_MAX])
{
    static const char *const residual_names[] = {"res1", "res2", "res3", "res4", "res5"};
    static const char *const error_names[] = {"err1", "err2", "err3", "err4", "err5"};
    double residual[FLOW_VARIABLES];
    double error[FLOW_VARIABLES];
    flow_residual_norms(flow, residual);
    flow_error_norms(flow, false, error);
    for (int m = 0; m < FLOW_VARIABLES; m++) {
        values[m] = (struct bench_value){residual_names[m], residual[m], problem->residual[m]};
        values[FLOW_VARIABLES + m] = (struct bench_value){error_names[m], error[m], problem->error[m]};
    }
    if (solver->integral == NULL)
        return VALUES_MAX - 1;
    values[VALUES_MAX - 1] = (struct bench_value){"surf", solver->integral(flow), problem->integral};
    return VALUES_MAX;
}

int run_flow(const struct flow_solver *solver, int argc, char **argv)
{
    const struct bench_options options = parse_arguments(&solver->program, argc, argv);
    const struct flow_class *problem = &solver->classes[options.problem_class];
    const double n = problem->n;
    struct bench_report report = {
        .kernel = solver->kernel,
        .problem_class = options.problem_class,
        .size = {problem->n, problem->n, problem->n},
        .iterations = problem->steps,
        .threads = team_size(),
        .operation = "floating point",
    };
    if (!options.json)
        print_heading(&report);

    /* Set up, with one untimed step to warm caches and page tables. */
    const double setup_start = wall_seconds();
    const double h = 1.0 / (n - 1.0);
    const int extent[FLOW_DIRECTIONS] = {problem->n, problem->n, problem->n};
    const double spacing[FLOW_DIRECTIONS] = {h, h, h};
    struct flow flow = make_flow(extent, spacing, problem->dt);
    if (solver->prepare != NULL)
        solver->prepare(&flow);
    restart(&flow);
    advance(solver, &flow);
    restart(&flow);
    report.setup_seconds = wall_seconds() - setup_start;

    const double start_time = wall_seconds();
    for (int step = 0; step < problem->steps; step++)
        advance(solver, &flow);
    report.seconds = wall_seconds() - start_time;

    const double *factors = solver->operations;
    const double operations = ((factors[0] * n + factors[1]) * n + factors[2]) * n + factors[3];
    report.mops = 1e-6 * operations * problem->steps / report.seconds;

    struct bench_value values[VALUES_MAX];
    report.values = values;
    report.value_count = gather_values(solver, problem, &flow, values);
    report.verified = values_agree(values, report.value_count, TOLERANCE);
    return finish_report(&report, options.json);
}
