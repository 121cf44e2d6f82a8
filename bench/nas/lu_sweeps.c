/*
 * Symmetric successive over-relaxation of the flow problem.  See lu_sweeps.h.
 */
#include "nas/lu_sweeps.h"

#include "nas/flow_jacobian.h"
#include "nas/handover.h"

#include <omp.h>

/* Adds the contribution of the neighbour before (side -1) or after (+1): its block times its change. */
static inline __attribute__((always_inline)) void
add_neighbour(const struct flow *flow, size_t point, int direction, double side, double sum[FLOW_VARIABLES])
{
    const double convect = side * flow->dt * flow->first[direction];
    const double diffuse = flow->dt * flow->second[direction];
    const struct flow_point *p = flow->points + point;
    const double *v = flow->residual + FLOW_VARIABLES * point;
    double flux[FLOW_VARIABLES];
    double viscous[FLOW_VARIABLES];
    flux_product(p, direction, v, flux);
    viscous_product(p, direction, v, viscous);
    for (int m = 0; m < FLOW_VARIABLES; m++)
        sum[m] += convect * flux[m] - diffuse * (FLOW_VISCOSITY * viscous[m] + flow_diffusion[direction] * v[m]);
}

/* Solves a point's own block for a vector, which it replaces. */
static void solve_own(const struct flow *flow, const struct flow_point *p, double v[FLOW_VARIABLES])
{
    flow_block block = {{0.0}};
    for (int direction = 0; direction < FLOW_DIRECTIONS; direction++) {
        const double diffuse = 2.0 * flow->dt * flow->second[direction];
        for (int m = 0; m < FLOW_VARIABLES; m++)
            block[m][m] += diffuse * flow_diffusion[direction];
        add_viscous_matrix(p, direction, diffuse * FLOW_VISCOSITY, block);
    }
    v[0] /= 1.0 + block[0][0];
    for (int a = 1; a <= FLOW_DIRECTIONS; a++)
        v[a] = (v[a] - block[a][0] * v[0]) / (1.0 + block[a][a]);
    for (int m = 0; m < 4; m++)
        v[4] -= block[4][m] * v[m];
    v[4] /= 1.0 + block[4][4];
}

/* One row of the sweep up, the residual becoming its result. */
static void lower_row(const struct flow *flow, int z, int y)
{
    const size_t row = flow_stride(flow, 1);
    const size_t plane = flow_stride(flow, 2);
    for (int x = 1; x < flow->extent[0] - 1; x++) {
        const size_t point = flow_index(flow, z, y, x);
        double *v = flow->residual + FLOW_VARIABLES * point;
        double before[FLOW_VARIABLES] = {0.0};
        add_neighbour(flow, point - plane, 2, -1.0, before);
        add_neighbour(flow, point - row, 1, -1.0, before);
        add_neighbour(flow, point - 1, 0, -1.0, before);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            v[m] = flow->dt * v[m] - LU_RELAXATION * before[m];
        solve_own(flow, flow->points + point, v);
    }
}

/* One row of the sweep down. */
static void upper_row(const struct flow *flow, int z, int y)
{
    const size_t row = flow_stride(flow, 1);
    const size_t plane = flow_stride(flow, 2);
    for (int x = flow->extent[0] - 2; x > 0; x--) {
        const size_t point = flow_index(flow, z, y, x);
        double *v = flow->residual + FLOW_VARIABLES * point;
        double behind[FLOW_VARIABLES] = {0.0};
        add_neighbour(flow, point + plane, 2, 1.0, behind);
        add_neighbour(flow, point + row, 1, 1.0, behind);
        add_neighbour(flow, point + 1, 0, 1.0, behind);
        solve_own(flow, flow->points + point, behind);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            v[m] -= LU_RELAXATION * behind[m];
    }
}

void lu_sweeps(const struct flow *flow)
{
    struct handover *handover = flow->handover;
    const int planes = flow->extent[2] - 2;
    const int rows = flow->extent[1] - 2;
    const int threads = omp_get_num_threads();
    const int thread = omp_get_thread_num();
    const int from = 1 + rows * thread / threads;
    const int to = 1 + rows * (thread + 1) / threads;

    handover_begin(handover);
    for (int plane = 1; plane <= planes; plane++) {
        handover_await(handover, thread, plane);
        for (int y = from; y < to; y++)
            lower_row(flow, plane, y);
        handover_pass(handover, thread, plane);
    }
    /* Back, from the last thread to the first. */
    handover_begin(handover);
    for (int plane = 1; plane <= planes; plane++) {
        handover_await(handover, threads - 1 - thread, plane);
        for (int y = to - 1; y >= from; y--)
            upper_row(flow, planes + 1 - plane, y);
        handover_pass(handover, threads - 1 - thread, plane);
    }
#pragma omp barrier
}

/* The pressure, summed over the corners of each cell of a rectangle of points, over two opposite sides. */
static double sides(const struct flow *flow, int direction, const int from[3], const int to[3])
{
    const int a = (direction + 1) % 3;
    const int b = (direction + 2) % 3;
    const size_t normal = flow_stride(flow, direction);
    const size_t along = flow_stride(flow, a);
    const size_t across = flow_stride(flow, b);
    double sum = 0.0;
    for (int side = 0; side < 2; side++)
        for (int i = from[a]; i < to[a]; i++)
            for (int j = from[b]; j < to[b]; j++) {
                const struct flow_point *p =
                    flow->points + (size_t)(side == 0 ? from[direction] : to[direction]) * normal +
                    (size_t)i * along + (size_t)j * across;
                sum += p[0].pressure + p[along].pressure + p[across].pressure + p[along + across].pressure;
            }
    return sum;
}

/* Over the surface of the box that the specification names, by the trapezoidal rule. */
double lu_surface_integral(const struct flow *flow)
{
    const int *n = flow->extent;
    const double *h = flow->spacing;
    const int from[FLOW_DIRECTIONS] = {1, 1, 2};
    const int to[FLOW_DIRECTIONS] = {n[0] - 2, n[1] - 3, n[2] - 2};
    double sum = 0.0;
    for (int direction = 0; direction < FLOW_DIRECTIONS; direction++)
        sum += 0.25 * h[(direction + 1) % 3] * h[(direction + 2) % 3] * sides(flow, direction, from, to);
    return sum;
}
