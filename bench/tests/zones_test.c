/*
 * Tests of a multi-zone benchmark, linked with one of them: zones are cut and distributed as
 * the specification says, and verification fails for a slightly wrong result.  Prints
 * failures, and ends with status 1 if there are any.
 *
 * As `zones_test values` it prints all bits of the results of one step of class S, to compare
 * runs with different teams.
 */
#include "nas/zones_run.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(bool holds, const char *claim)
{
    if (!holds) {
        fprintf(stderr, "FAILED: %s: %s\n", zones_solver.kernel, claim);
        failures++;
    }
}

static struct zones zones;

/* Sizes of zones by class S of BT-MZ: the published ones. */
static void unequal_zones_are_cut_as_published(void)
{
    const struct zones_cut cut = {{2, 2}, {24, 24, 6}, 3.0};
    zones_lay_out(&zones, &cut);
    expect(zones.count == 4, "2 x 2 zones are 4");
    expect(zones.zone[0].extent[0] == 6 && zones.zone[1].extent[0] == 18, "24 points by 3 to 1 are 6 and 18");
    expect(zones.zone[1].extent[1] == 6 && zones.zone[2].extent[1] == 18, "rows grow as columns do");
    expect(zones.zone[3].extent[2] == 6, "zones are not cut along z");
}

static void zones_fill_the_mesh(void)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        const struct zones_cut *cut = &zones_solver.classes[c].cut;
        long points = 0;
        zones_lay_out(&zones, cut);
        for (int i = 0; i < zones.count; i++) {
            const int *n = zones.zone[i].extent;
            points += (long)n[0] * n[1] * n[2];
            expect(n[0] >= 5 && n[1] >= 5 && n[0] <= FLOW_MAX_EXTENT && n[1] <= FLOW_MAX_EXTENT,
                   "sides have 5 points at least, for fourth differences, and no more than lines may have");
        }
        expect(points == (long)cut->points[0] * cut->points[1] * cut->points[2], "each point is in one zone");
    }
}

static void zones_are_dealt_to_the_least_loaded(void)
{
    int team[ZONES_MAX];
    const struct zones_cut cut = {{2, 2}, {24, 24, 6}, 3.0};
    zones_lay_out(&zones, &cut);
    zones_deal(&zones, 2);
    /* 18 x 18 on one side, the three others on the other. */
    expect(zones.zone[3].owner == 0, "the largest zone is dealt first");
    expect(zones.zone[0].owner == 1 && zones.zone[1].owner == 1 && zones.zone[2].owner == 1,
           "the others go where least is to do");
    zones_size_teams(&zones, 2, 4, team);
    expect(team[0] == 2 && team[1] == 2, "324 and 252 points a plane get 2 and 2 of 4 threads");
    zones_size_teams(&zones, 2, 7, team);
    expect(team[0] == 4 && team[1] == 3, "and 4 and 3 of 7");
    zones_size_teams(&zones, 2, 2, team);
    expect(team[0] == 1 && team[1] == 1, "each has one at least");
    zones_deal(&zones, 4);
    zones_size_teams(&zones, 4, 5, team);
    expect(team[0] + team[1] + team[2] + team[3] == 5 && team[3] == 1, "all threads are given, and no more");
}

static bool verifies(const struct zones_class *problem)
{
    struct bench_report report = {.kernel = zones_solver.kernel};
    struct bench_value values[ZONES_VALUES];
    zones_solve(&zones_solver, problem, &report, values);
    return report.verified;
}

/* A computation that is a millionth wrong, and each reference that is a ten-millionth wrong, must not pass. */
static void what_is_a_little_wrong_is_not_verified(void)
{
    const struct zones_class *right = &zones_solver.classes[CLASS_S];
    expect(verifies(right), "class S verifies");
    struct zones_class wrong = *right;
    wrong.dt *= 1.0 + 1e-6;
    expect(!verifies(&wrong), "class S with another time step does not verify");
    for (int m = 0; m < 2 * FLOW_VARIABLES; m++) {
        wrong = *right;
        if (m < FLOW_VARIABLES)
            wrong.residual[m] *= 1.0 + 1e-7;
        else
            wrong.error[m - FLOW_VARIABLES] *= 1.0 + 1e-7;
        expect(!verifies(&wrong), "a norm that differs from its reference does not verify");
    }
    if (zones_solver.integral != NULL) {
        wrong = *right;
        wrong.integral *= 1.0 + 1e-7;
        expect(!verifies(&wrong), "an integral that differs from its reference does not verify");
    }
}

static int write_values(void)
{
    struct zones_class brief = zones_solver.classes[CLASS_S];
    brief.steps = 1;
    struct bench_report report = {.kernel = zones_solver.kernel};
    struct bench_value values[ZONES_VALUES];
    zones_solve(&zones_solver, &brief, &report, values);
    for (size_t v = 0; v < report.value_count; v++)
        printf("%s %a\n", values[v].name, values[v].computed);
    fprintf(stderr, "%d x %d\n", report.outer, report.inner);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "values") == 0)
        return write_values();
    unequal_zones_are_cut_as_published();
    zones_fill_the_mesh();
    zones_are_dealt_to_the_least_loaded();
    what_is_a_little_wrong_is_not_verified();
    return failures == 0 ? 0 : 1;
}
