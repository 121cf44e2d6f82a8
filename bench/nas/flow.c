/*
 * Fields of the flow problem.  See flow.h.
 */
#include "nas/flow.h"

#include "common/memory.h"

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

static void exact_at(const struct flow *flow, int z, int y, int x, double state[FLOW_VARIABLES])
{
    const double h = 1.0 / (flow->n - 1);
    const double at[FLOW_DIRECTIONS] = {x * h, y * h, z * h};
    exact_state(at, state);
}

static double *state_at(double *field, const struct flow *flow, int z, int y, int x)
{
    const size_t n = (size_t)flow->n;
    return field + FLOW_VARIABLES * (((size_t)z * n + (size_t)y) * n + (size_t)x);
}

/* The guess inside: between each two opposite sides linearly, and the three combined so that all sides are met. */
static void guess_at(const struct flow *flow, int z, int y, int x, double state[FLOW_VARIABLES])
{
    const double h = 1.0 / (flow->n - 1);
    const double at[FLOW_DIRECTIONS] = {x * h, y * h, z * h};
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

static void set_exact(const struct flow *flow)
{
#pragma omp parallel for schedule(static)
    for (int z = 0; z < flow->n; z++)
        for (int y = 0; y < flow->n; y++)
            for (int x = 0; x < flow->n; x++)
                exact_at(flow, z, y, x, state_at(flow->u, flow, z, y, x));
}

void flow_start(const struct flow *flow)
{
    const int last = flow->n - 1;
#pragma omp parallel for schedule(static)
    for (int z = 0; z <= last; z++)
        for (int y = 0; y <= last; y++)
            for (int x = 0; x <= last; x++) {
                double *state = state_at(flow->u, flow, z, y, x);
                if (x == 0 || y == 0 || z == 0 || x == last || y == last || z == last)
                    exact_at(flow, z, y, x, state);
                else
                    guess_at(flow, z, y, x, state);
            }
}

struct flow make_flow(int n, double dt)
{
    const size_t points = (size_t)n * (size_t)n * (size_t)n;
    const size_t plane = FLOW_VARIABLES * (size_t)n * (size_t)n;
    const double intervals = n - 1;
    const struct flow flow = {
        .n = n,
        .dt = dt,
        .first = 0.5 * intervals,
        .second = intervals * intervals,
        .u = allocate_untouched(FLOW_VARIABLES * points, sizeof(double)),
        .forcing = allocate_untouched(FLOW_VARIABLES * points, sizeof(double)),
        .residual = allocate_untouched(FLOW_VARIABLES * points, sizeof(double)),
        .points = allocate_untouched(points, sizeof(struct flow_point)),
    };
#pragma omp parallel for schedule(static)
    for (size_t z = 0; z < (size_t)n; z++) {
        memset(flow.forcing + z * plane, 0, plane * sizeof(double));
        memset(flow.residual + z * plane, 0, plane * sizeof(double));
    }
    /* The forcing is what balances the operator on the exact solution. */
    set_exact(&flow);
#pragma omp parallel
    flow_residual(&flow);
#pragma omp parallel for schedule(static)
    for (size_t z = 0; z < (size_t)n; z++)
        for (size_t i = z * plane; i < (z + 1) * plane; i++)
            flow.forcing[i] = -flow.residual[i];
    return flow;
}

void flow_advance(const struct flow *flow, double factor)
{
    const size_t inner = FLOW_VARIABLES * (size_t)(flow->n - 2);
#pragma omp for schedule(static)
    for (int z = 1; z < flow->n - 1; z++)
        for (int y = 1; y < flow->n - 1; y++) {
            double *state = state_at(flow->u, flow, z, y, 1);
            const double *change = state_at(flow->residual, flow, z, y, 1);
            for (size_t i = 0; i < inner; i++)
                state[i] += factor * change[i];
        }
}

/* Norms of one field minus the exact solution, or of it alone. */
static void norms_of(const struct flow *flow, double *field, int minus_exact, double norms[FLOW_VARIABLES])
{
    /* Sums of planes, added in order, so that threads do not change how they are rounded. */
    double sums[FLOW_MAX_EXTENT][FLOW_VARIABLES];
    const int n = flow->n;
#pragma omp parallel for schedule(static)
    for (int z = 1; z < n - 1; z++) {
        double sum[FLOW_VARIABLES] = {0.0};
        for (int y = 1; y < n - 1; y++)
            for (int x = 1; x < n - 1; x++) {
                const double *state = state_at(field, flow, z, y, x);
                double exact[FLOW_VARIABLES] = {0.0};
                if (minus_exact)
                    exact_at(flow, z, y, x, exact);
                for (int m = 0; m < FLOW_VARIABLES; m++)
                    sum[m] += (state[m] - exact[m]) * (state[m] - exact[m]);
            }
        memcpy(sums[z], sum, sizeof sum);
    }
    const double inner = n - 2;
    for (int m = 0; m < FLOW_VARIABLES; m++) {
        double all = 0.0;
        for (int z = 1; z < n - 1; z++)
            all += sums[z][m];
        norms[m] = sqrt(all / (inner * inner * inner));
    }
}

void flow_residual_norms(const struct flow *flow, double norms[FLOW_VARIABLES])
{
    norms_of(flow, flow->residual, 0, norms);
}

void flow_error_norms(const struct flow *flow, double norms[FLOW_VARIABLES])
{
    norms_of(flow, flow->u, 1, norms);
}
