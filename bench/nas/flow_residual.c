/*
 * The operator R of the flow problem.  See flow.h.
 *
 * Along each direction, with the velocity's component w along it:
 *
 *     R(u) = - D1 F(u) + D2 G(u) + diffusion D2 u - dissipation D4 u
 *
 *     F = (momentum, momentum w, with pressure added along the direction, (energy + pressure) w)
 *     G = viscosity (0, velocity, by 4/3 along the direction, heat)
 *
 * with D1, D2, D4 the central first, second and fourth differences.  D4 keeps to
 * the points inside: next to the border it leaves out what it would need of it.
 */
#include "nas/flow.h"

#include "common/schedule.h"

#include <math.h>

static double second_difference(double before, double here, double after)
{
    return before - 2.0 * here + after;
}

static struct flow_point point_of(const double u[FLOW_VARIABLES])
{
    struct flow_point p = {.inverse_density = 1.0 / u[0]};
    for (int a = 0; a < FLOW_DIRECTIONS; a++) {
        p.velocity[a] = u[1 + a] * p.inverse_density;
        p.kinetic += 0.5 * p.velocity[a] * p.velocity[a];
    }
    p.energy = u[4] * p.inverse_density;
    p.pressure = FLOW_GAS * (u[4] - u[0] * p.kinetic);
    p.sound = sqrt(FLOW_GAMMA * p.pressure * p.inverse_density);
    return p;
}

/* The fourth difference at inner point number `at`, of n with the border. */
static inline double fourth_difference(const double *u, ptrdiff_t stride, int at, int n)
{
    double sum = (at == 1 || at == n - 2 ? 5.0 : 6.0) * u[0];
    if (at > 1)
        sum -= 4.0 * u[-stride];
    if (at < n - 2)
        sum -= 4.0 * u[stride];
    if (at > 2)
        sum += u[-2 * stride];
    if (at < n - 3)
        sum += u[2 * stride];
    return sum;
}

/* Adds the contribution of one direction to one point.  Inlined three times, so that the direction is a
 * constant. */
static inline __attribute__((always_inline)) void
add_direction(const struct flow *flow, size_t point, int at, int direction, double out[FLOW_VARIABLES])
{
    const size_t stride = flow_stride(flow, direction);
    const ptrdiff_t step = (ptrdiff_t)(FLOW_VARIABLES * stride);
    const double *u = flow->u + FLOW_VARIABLES * point;
    const double *next = u + step;
    const double *last = u - step;
    const struct flow_point *here = flow->points + point;
    const struct flow_point *after = here + stride;
    const struct flow_point *before = here - stride;
    const double wa = after->velocity[direction];
    const double wh = here->velocity[direction];
    const double wb = before->velocity[direction];
    const double first = flow->first[direction];
    const double second = flow->second[direction];
    const double viscous = FLOW_VISCOSITY * second;

    out[0] -= first * (next[1 + direction] - last[1 + direction]);
    for (int a = 0; a < FLOW_DIRECTIONS; a++) {
        double flux = next[1 + a] * wa - last[1 + a] * wb;
        double stress = second_difference(before->velocity[a], here->velocity[a], after->velocity[a]);
        if (a == direction) {
            flux += after->pressure - before->pressure;
            stress *= 4.0 / 3.0;
        }
        out[1 + a] += viscous * stress - first * flux;
    }
    const double heat =
        (1.0 - FLOW_CONDUCTION) * second_difference(before->kinetic, here->kinetic, after->kinetic) +
        1.0 / 6.0 * second_difference(wb * wb, wh * wh, wa * wa) +
        FLOW_CONDUCTION * second_difference(before->energy, here->energy, after->energy);
    out[4] += viscous * heat -
              first * ((next[4] + after->pressure) * wa - (last[4] + before->pressure) * wb);

    const double diffusion = flow_diffusion[direction] * second;
    for (int m = 0; m < FLOW_VARIABLES; m++)
        out[m] += diffusion * second_difference(last[m], u[m], next[m]) -
                  FLOW_DISSIPATION * fourth_difference(u + m, step, at, flow->extent[direction]);
}

/* The residual of one row. */
static void residual_row(const struct flow *flow, int z, int y)
{
    for (int x = 1; x < flow->extent[0] - 1; x++) {
        const size_t point = flow_index(flow, z, y, x);
        double out[FLOW_VARIABLES];
        for (int m = 0; m < FLOW_VARIABLES; m++)
            out[m] = flow->forcing[FLOW_VARIABLES * point + (size_t)m];
        add_direction(flow, point, x, 0, out);
        add_direction(flow, point, y, 1, out);
        add_direction(flow, point, z, 2, out);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            flow->residual[FLOW_VARIABLES * point + (size_t)m] = out[m];
    }
}

void flow_residual(const struct flow *flow)
{
    const size_t row = (size_t)flow->extent[0];

#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 0; z < flow->extent[2]; z++)
        for (int y = 0; y < flow->extent[1]; y++) {
            const size_t first = flow_index(flow, z, y, 0);
            for (size_t point = first; point < first + row; point++)
                flow->points[point] = point_of(flow->u + FLOW_VARIABLES * point);
        }

#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 1; z < flow->extent[2] - 1; z++)
        for (int y = 1; y < flow->extent[1] - 1; y++)
            residual_row(flow, z, y);
}
