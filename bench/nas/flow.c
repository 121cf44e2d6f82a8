/*
 * Fields of the flow problem.  See flow.h.
 */
#include "nas/flow.h"

#include "common/memory.h"
#include "common/schedule.h"

#include <math.h>
#include <string.h>

/* The exact solution: of each variable a constant, then the factors of x y z, of their squares, cubes and fourth powers. */
static const double coefficients[FLOW_VARIABLES][13] = {
    {2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
    {1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
};

static void exact_state(const double at[FLOW_DIRECTIONS], double state[FLOW_VARIABLES])
{
    for (int m = 0; m < FLOW_VARIABLES; m++) {
        const double *c = coefficients[m];
        state[m] = c[0];
        for (int d = 0; d < FLOW_DIRECTIONS; d++)
            state[m] += at[d] * (c[1 + d] + at[d] * (c[4 + d] + at[d] * (c[7 + d] + at[d] * c[10 + d])));
    }
}

/* The position of a point. */
static void position_of(const struct flow *flow, const int index[FLOW_DIRECTIONS], double at[FLOW_DIRECTIONS])
{
    for (int d = 0; d < FLOW_DIRECTIONS; d++)
        at[d] = index[d] * flow->spacing[d];
}

static void exact_at(const struct flow *flow, int z, int y, int x, double state[FLOW_VARIABLES])
{
    const int index[FLOW_DIRECTIONS] = {x, y, z};
    double at[FLOW_DIRECTIONS];
    position_of(flow, index, at);
    exact_state(at, state);
}

static double *state_at(double *field, const struct flow *flow, int z, int y, int x)
{
    return field + FLOW_VARIABLES * flow_index(flow, z, y, x);
}

/* The guess inside: between each two opposite sides linearly, and the three combined so that all sides are met. */
static void guess_at(const double at[FLOW_DIRECTIONS], double state[FLOW_VARIABLES])
{
    double between[FLOW_DIRECTIONS][FLOW_VARIABLES];
    for (int d = 0; d < FLOW_DIRECTIONS; d++) {
        double side[2][FLOW_VARIABLES];
        for (int s = 0; s < 2; s++) {
            double on_side[FLOW_DIRECTIONS] = {at[0], at[1], at[2]};
            on_side[d] = s;
            exact_state(on_side, side[s]);
        }
        for (int m = 0; m < FLOW_VARIABLES; m++)
            between[d][m] = at[d] * side[1][m] + (1.0 - at[d]) * side[0][m];
    }
    for (int m = 0; m < FLOW_VARIABLES; m++) {
        const double a = between[0][m];
        const double b = between[1][m];
        const double c = between[2][m];
        state[m] = a + b + c - a * b - b * c - c * a + a * b * c;
    }
}

/* The initial state of a point.  The sides of a zone are sides of the unit cube, wherever their points are: in zones of
 * unequal size, with equal distances in all, the last point of a row is not at 1.  At an edge of two sides, z takes
 * precedence over y, and y over x. */
static void initial_at(const struct flow *flow, int z, int y, int x, double state[FLOW_VARIABLES])
{
    const int index[FLOW_DIRECTIONS] = {x, y, z};
    double at[FLOW_DIRECTIONS];
    position_of(flow, index, at);
    for (int d = FLOW_DIRECTIONS - 1; d >= 0; d--)
        if (index[d] == 0 || index[d] == flow->extent[d] - 1) {
            at[d] = index[d] == 0 ? 0.0 : 1.0;
            exact_state(at, state);
            return;
        }
    guess_at(at, state);
}

static void set_exact(const struct flow *flow)
{
#pragma omp parallel for schedule(static) collapse(2)
    for (int z = 0; z < flow->extent[2]; z++)
        for (int y = 0; y < flow->extent[1]; y++)
            for (int x = 0; x < flow->extent[0]; x++)
                exact_at(flow, z, y, x, state_at(flow->u, flow, z, y, x));
}

void flow_start(const struct flow *flow)
{
#pragma omp parallel for schedule(static) collapse(2)
    for (int z = 0; z < flow->extent[2]; z++)
        for (int y = 0; y < flow->extent[1]; y++)
            for (int x = 0; x < flow->extent[0]; x++)
                initial_at(flow, z, y, x, state_at(flow->u, flow, z, y, x));
}

/* Sets the forcing that balances the operator on the exact solution. */
static void set_forcing(const struct flow *flow)
{
    const size_t row = FLOW_VARIABLES * (size_t)flow->extent[0];
#pragma omp parallel for schedule(static) collapse(2)
    for (int z = 0; z < flow->extent[2]; z++)
        for (int y = 0; y < flow->extent[1]; y++) {
            memset(state_at(flow->forcing, flow, z, y, 0), 0, row * sizeof(double));
            memset(state_at(flow->residual, flow, z, y, 0), 0, row * sizeof(double));
        }
    set_exact(flow);
#pragma omp parallel
    flow_residual(flow);
#pragma omp parallel for schedule(static) collapse(2)
    for (int z = 0; z < flow->extent[2]; z++)
        for (int y = 0; y < flow->extent[1]; y++) {
            double *forcing = state_at(flow->forcing, flow, z, y, 0);
            const double *residual = state_at(flow->residual, flow, z, y, 0);
            for (size_t i = 0; i < row; i++)
                forcing[i] = -residual[i];
        }
}

struct flow make_flow(const int extent[FLOW_DIRECTIONS], const double spacing[FLOW_DIRECTIONS], double dt)
{
    struct flow flow = {.dt = dt};
    size_t points = 1;
    for (int d = 0; d < FLOW_DIRECTIONS; d++) {
        flow.extent[d] = extent[d];
        flow.spacing[d] = spacing[d];
        flow.first[d] = 0.5 / spacing[d];
        flow.second[d] = 1.0 / (spacing[d] * spacing[d]);
        points *= (size_t)extent[d];
    }
    flow.u = allocate_untouched(FLOW_VARIABLES * points, sizeof(double));
    flow.forcing = allocate_untouched(FLOW_VARIABLES * points, sizeof(double));
    flow.residual = allocate_untouched(FLOW_VARIABLES * points, sizeof(double));
    flow.points = allocate_untouched(points, sizeof(struct flow_point));
    set_forcing(&flow);
    return flow;
}

void flow_advance(const struct flow *flow, double factor)
{
    const size_t inner = FLOW_VARIABLES * (size_t)(flow->extent[0] - 2);
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 1; z < flow->extent[2] - 1; z++)
        for (int y = 1; y < flow->extent[1] - 1; y++) {
            double *state = state_at(flow->u, flow, z, y, 1);
            const double *change = state_at(flow->residual, flow, z, y, 1);
            for (size_t i = 0; i < inner; i++)
                state[i] += factor * change[i];
        }
}

/* Input of a norm. */
struct norm_of {
    double *field;
    bool minus_exact; /* of its distance from the exact solution */
    int border;       /* points that are left out at each end: 1, or 0 with the border */
};

static void norms_of(const struct flow *flow, struct norm_of of, double norms[FLOW_VARIABLES])
{
    /* Sums of planes, added in order, so that the number of threads does not change the
     * rounding. */
    double sums[FLOW_MAX_EXTENT][FLOW_VARIABLES];
    const int *n = flow->extent;
#pragma omp parallel for schedule(static)
    for (int z = of.border; z < n[2] - of.border; z++) {
        double sum[FLOW_VARIABLES] = {0.0};
        for (int y = of.border; y < n[1] - of.border; y++)
            for (int x = of.border; x < n[0] - of.border; x++) {
                const double *state = state_at(of.field, flow, z, y, x);
                double exact[FLOW_VARIABLES] = {0.0};
                if (of.minus_exact)
                    exact_at(flow, z, y, x, exact);
                for (int m = 0; m < FLOW_VARIABLES; m++)
                    sum[m] += (state[m] - exact[m]) * (state[m] - exact[m]);
            }
        memcpy(sums[z], sum, sizeof sum);
    }
    const double inner = (n[0] - 2.0) * (n[1] - 2.0) * (n[2] - 2.0);
    for (int m = 0; m < FLOW_VARIABLES; m++) {
        double all = 0.0;
        for (int z = of.border; z < n[2] - of.border; z++)
            all += sums[z][m];
        norms[m] = sqrt(all / inner);
    }
}

void flow_residual_norms(const struct flow *flow, double norms[FLOW_VARIABLES])
{
    norms_of(flow, (struct norm_of){flow->residual, false, 1}, norms);
}

void flow_error_norms(const struct flow *flow, bool with_border, double norms[FLOW_VARIABLES])
{
    norms_of(flow, (struct norm_of){flow->u, true, with_border ? 0 : 1}, norms);
}
