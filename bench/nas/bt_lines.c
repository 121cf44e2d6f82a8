/*
 * Block tridiagonal systems along the lines of a grid.  See bt_lines.h.
 */
#include "nas/bt_lines.h"

#include "common/schedule.h"
#include "nas/flow_jacobian.h"

#define LINE_MAX FLOW_MAX_EXTENT

/* Solves the diagonal block for another block and for a vector, and replaces both by the solutions. */
static void eliminate(flow_block diagonal, flow_block upper, double r[FLOW_VARIABLES])
{
    for (int pivot = 0; pivot < FLOW_VARIABLES; pivot++) {
        const double inverse = 1.0 / diagonal[pivot][pivot];
        for (int column = pivot + 1; column < FLOW_VARIABLES; column++)
            diagonal[pivot][column] *= inverse;
        for (int column = 0; column < FLOW_VARIABLES; column++)
            upper[pivot][column] *= inverse;
        r[pivot] *= inverse;
        for (int row = 0; row < FLOW_VARIABLES; row++) {
            if (row == pivot)
                continue;
            const double factor = diagonal[row][pivot];
            for (int column = pivot + 1; column < FLOW_VARIABLES; column++)
                diagonal[row][column] -= factor * diagonal[pivot][column];
            for (int column = 0; column < FLOW_VARIABLES; column++)
                upper[row][column] -= factor * upper[pivot][column];
            r[row] -= factor * r[pivot];
        }
    }
}

/* c -= a b */
static void subtract_product(flow_block a, flow_block b, flow_block c)
{
    for (int row = 0; row < FLOW_VARIABLES; row++)
        for (int k = 0; k < FLOW_VARIABLES; k++)
            for (int column = 0; column < FLOW_VARIABLES; column++)
                c[row][column] -= a[row][k] * b[k][column];
}

/* out -= a v */
static void subtract_vector(flow_block a, const double v[FLOW_VARIABLES], double out[FLOW_VARIABLES])
{
    for (int row = 0; row < FLOW_VARIABLES; row++)
        for (int k = 0; k < FLOW_VARIABLES; k++)
            out[row] -= a[row][k] * v[k];
}

/* The block by which a neighbour enters: the one before (side -1) or after (+1). */
static inline __attribute__((always_inline)) void
neighbour_block(const struct flow *flow, const struct flow_point *p, int direction, double side, flow_block block)
{
    const double convect = side * flow->dt * flow->first[direction];
    const double diffuse = flow->dt * flow->second[direction];
    flux_matrix(p, direction, block);
    for (int row = 0; row < FLOW_VARIABLES; row++) {
        for (int column = 0; column < FLOW_VARIABLES; column++)
            block[row][column] *= convect;
        block[row][row] -= diffuse * flow_diffusion[direction];
    }
    add_viscous_matrix(p, direction, -diffuse * FLOW_VISCOSITY, block);
}

static inline __attribute__((always_inline)) void
own_block(const struct flow *flow, const struct flow_point *p, int direction, flow_block block)
{
    const double diffuse = 2.0 * flow->dt * flow->second[direction];
    for (int row = 0; row < FLOW_VARIABLES; row++)
        for (int column = 0; column < FLOW_VARIABLES; column++)
            block[row][column] = row == column ? 1.0 + diffuse * flow_diffusion[direction] : 0.0;
    add_viscous_matrix(p, direction, diffuse * FLOW_VISCOSITY, block);
}

/* One line of the grid, from its point on the border.  The border does not change, so it does not enter. */
static inline __attribute__((always_inline)) void solve_line(const struct flow *flow, size_t start, int direction)
{
    flow_block upper[LINE_MAX];
    double r[LINE_MAX][FLOW_VARIABLES];
    const size_t stride = flow_stride(flow, direction);
    const int last = flow->extent[direction] - 2;
    const double scale = direction == 0 ? flow->dt : 1.0;
    for (int i = 1; i <= last; i++) {
        const struct flow_point *p = flow->points + start + (size_t)i * stride;
        const double *right = flow->residual + FLOW_VARIABLES * (start + (size_t)i * stride);
        flow_block diagonal;
        own_block(flow, p, direction, diagonal);
        neighbour_block(flow, p + stride, direction, 1.0, upper[i]);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            r[i][m] = scale * right[m];
        if (i > 1) {
            flow_block lower;
            neighbour_block(flow, p - stride, direction, -1.0, lower);
            subtract_vector(lower, r[i - 1], r[i]);
            subtract_product(lower, upper[i - 1], diagonal);
        }
        eliminate(diagonal, upper[i], r[i]);
    }
    for (int i = last - 1; i >= 1; i--)
        subtract_vector(upper[i], r[i + 1], r[i]);
    for (int i = 1; i <= last; i++)
        for (size_t m = 0; m < FLOW_VARIABLES; m++)
            flow->residual[FLOW_VARIABLES * (start + (size_t)i * stride) + m] = r[i][m];
}

/* One line along x, and one along y. */
static void x_line(const struct flow *flow, int z, int y)
{
    solve_line(flow, flow_index(flow, z, y, 0), 0);
}

static void y_line(const struct flow *flow, int z, int x)
{
    solve_line(flow, flow_index(flow, z, 0, x), 1);
}

void bt_lines_x(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 1; z < flow->extent[2] - 1; z++)
        for (int y = 1; y < flow->extent[1] - 1; y++)
            x_line(flow, z, y);
}

void bt_lines_y(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 1; z < flow->extent[2] - 1; z++)
        for (int x = 1; x < flow->extent[0] - 1; x++)
            y_line(flow, z, x);
}

void bt_lines_z(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int y = 1; y < flow->extent[1] - 1; y++)
        for (int x = 1; x < flow->extent[0] - 1; x++)
            solve_line(flow, flow_index(flow, 0, y, x), 2);
}

void bt_lines(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE)
    for (int z = 1; z < flow->extent[2] - 1; z++) {
        for (int y = 1; y < flow->extent[1] - 1; y++)
            x_line(flow, z, y);
        for (int x = 1; x < flow->extent[0] - 1; x++)
            y_line(flow, z, x);
    }
    bt_lines_z(flow);
}
