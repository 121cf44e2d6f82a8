/*
 * The main program of the multi-zone benchmarks.  See zones_run.h.
 */
#include "nas/zones_run.h"

int main(int argc, char **argv)
{
    const struct bench_options options = parse_arguments(&zones_solver.program, argc, argv);
    const struct zones_class *problem = &zones_solver.classes[options.problem_class];
    struct bench_report report = {
        .kernel = zones_solver.kernel,
        .problem_class = options.problem_class,
        .iterations = problem->steps,
        .operation = "floating point",
    };
    for (int d = 0; d < FLOW_DIRECTIONS; d++)
        report.size[d] = problem->cut.points[d];
    zones_shape(problem, &report.outer, &report.inner);
    report.threads = report.outer * report.inner;
    if (!options.json)
        print_heading(&report);
    struct bench_value values[ZONES_VALUES];
    zones_solve(&zones_solver, problem, &report, values);
    return finish_report(&report, options.json);
}
