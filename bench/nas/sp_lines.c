/*
 * Scalar pentadiagonal systems along the lines of a grid.  See sp_lines.h.
 */
#include "nas/sp_lines.h"

#include "common/schedule.h"

#include <math.h>

#define LINE_MAX FLOW_MAX_EXTENT

/* A row of a matrix with five diagonals. */
typedef double band[5];

/* Into the characteristic variables of x. */
static void into_x(const struct flow_point *p, double r[FLOW_VARIABLES])
{
    const double *v = p->velocity;
    const double half = sqrt(0.5);
    const double pressure = FLOW_GAS / (p->sound * p->sound) *
                            (p->kinetic * r[0] - v[0] * r[1] - v[1] * r[2] - v[2] * r[3] + r[4]);
    const double along = half * p->inverse_density * (v[0] * r[0] - r[1]);
    const double sound = half * p->inverse_density * p->sound * pressure;
    const double density = r[0];
    r[0] = density - pressure;
    const double across_y = p->inverse_density * (v[1] * density - r[2]);
    r[1] = -p->inverse_density * (v[2] * density - r[3]);
    r[2] = across_y;
    r[3] = sound - along;
    r[4] = sound + along;
}

/* From the characteristic variables of x to those of y. */
static void from_x_to_y(double r[FLOW_VARIABLES])
{
    const double turned = sqrt(0.5) * r[2];
    const double mean = 0.5 * (r[3] + r[4]);
    const double first = r[0];
    r[0] = -r[1];
    r[1] = first;
    r[2] = sqrt(0.5) * (r[3] - r[4]);
    r[3] = mean - turned;
    r[4] = mean + turned;
}

/* From the characteristic variables of y to those of z. */
static void from_y_to_z(double r[FLOW_VARIABLES])
{
    const double turned = sqrt(0.5) * r[0];
    const double mean = 0.5 * (r[3] + r[4]);
    const double second = r[1];
    r[0] = sqrt(0.5) * (r[3] - r[4]);
    r[1] = -r[2];
    r[2] = second;
    r[3] = mean - turned;
    r[4] = mean + turned;
}

/* Back from the characteristic variables of z. */
static void out_of_z(const struct flow_point *p, double r[FLOW_VARIABLES])
{
    const double *v = p->velocity;
    const double rho = 1.0 / p->inverse_density;
    const double scaled = sqrt(0.5) * rho;
    const double sound = scaled / p->sound * (r[3] + r[4]);
    const double density = r[2] + sound;
    const double along = scaled * (r[3] - r[4]);
    const double x = -rho * r[1];
    const double y = rho * r[0];
    r[0] = density;
    r[1] = x + v[0] * density;
    r[2] = y + v[1] * density;
    r[3] = along + v[2] * density;
    r[4] = v[0] * x + v[1] * y + p->kinetic * density + p->sound * p->sound / FLOW_GAS * sound + v[2] * along;
}

/* Solves one system for the right-hand sides from..to-1; the rows are used up. */
static inline __attribute__((always_inline)) void
solve_bands(band *rows, double (*r)[FLOW_VARIABLES], int count, int from, int to)
{
    for (int i = 0; i < count; i++) {
        const double inverse = 1.0 / rows[i][2];
        rows[i][3] *= inverse;
        rows[i][4] *= inverse;
        for (int m = from; m < to; m++)
            r[i][m] *= inverse;
        if (i + 1 < count) {
            band *below = &rows[i + 1];
            (*below)[2] -= (*below)[1] * rows[i][3];
            (*below)[3] -= (*below)[1] * rows[i][4];
            for (int m = from; m < to; m++)
                r[i + 1][m] -= (*below)[1] * r[i][m];
        }
        if (i + 2 < count) {
            band *below = &rows[i + 2];
            (*below)[1] -= (*below)[0] * rows[i][3];
            (*below)[2] -= (*below)[0] * rows[i][4];
            for (int m = from; m < to; m++)
                r[i + 2][m] -= (*below)[0] * r[i][m];
        }
    }
    for (int i = count - 2; i >= 0; i--)
        for (int m = from; m < to; m++) {
            r[i][m] -= rows[i][3] * r[i + 1][m];
            if (i + 2 < count)
                r[i][m] -= rows[i][4] * r[i + 2][m];
        }
}

/* The rows of inner points 1 to n - 2, for waves that move with the flow plus `sounds` times the speed of sound. */
static void build_bands(const struct flow *flow, const struct flow_point *line, size_t stride, int direction,
                        double sounds, band *rows)
{
    const int n = flow->extent[direction];
    const double convect = flow->dt * flow->first[direction];
    const double diffuse = flow->dt * flow->second[direction];
    const double dissipate = flow->dt * FLOW_DISSIPATION;
    for (int i = 1; i < n - 1; i++) {
        const struct flow_point *p[3];
        double viscous[3];
        double speed[3];
        for (int side = 0; side < 3; side++) {
            p[side] = line + (size_t)(i + side - 1) * stride;
            /* The largest of the viscous coefficients, which is that of heat. */
            viscous[side] = flow_diffusion[direction] +
                            FLOW_CONDUCTION * FLOW_VISCOSITY * p[side]->inverse_density;
            speed[side] = p[side]->velocity[direction] + sounds * p[side]->sound;
        }
        band *row = &rows[i - 1];
        (*row)[0] = i > 2 ? dissipate : 0.0;
        (*row)[1] = -convect * speed[0] - diffuse * viscous[0] - (i > 1 ? 4.0 * dissipate : 0.0);
        (*row)[2] = 1.0 + 2.0 * diffuse * viscous[1] + (i == 1 || i == n - 2 ? 5.0 : 6.0) * dissipate;
        (*row)[3] = convect * speed[2] - diffuse * viscous[2] - (i < n - 2 ? 4.0 * dissipate : 0.0);
        (*row)[4] = i < n - 3 ? dissipate : 0.0;
    }
}

/* One line of the grid, from its point on the border. */
static inline __attribute__((always_inline)) void solve_line(const struct flow *flow, size_t start, int direction)
{
    band rows[LINE_MAX];
    double r[LINE_MAX][FLOW_VARIABLES];
    const size_t stride = flow_stride(flow, direction);
    const struct flow_point *line = flow->points + start;
    const int inner = flow->extent[direction] - 2;
    for (int i = 0; i < inner; i++) {
        const size_t point = start + (size_t)(i + 1) * stride;
        for (int m = 0; m < FLOW_VARIABLES; m++)
            r[i][m] = flow->residual[FLOW_VARIABLES * point + (size_t)m];
        if (direction == 0) {
            for (int m = 0; m < FLOW_VARIABLES; m++)
                r[i][m] *= flow->dt;
            into_x(flow->points + point, r[i]);
        }
    }
    build_bands(flow, line, stride, direction, 0.0, rows);
    solve_bands(rows, r, inner, 0, 3);
    build_bands(flow, line, stride, direction, 1.0, rows);
    solve_bands(rows, r, inner, 3, 4);
    build_bands(flow, line, stride, direction, -1.0, rows);
    solve_bands(rows, r, inner, 4, 5);
    for (int i = 0; i < inner; i++) {
        const size_t point = start + (size_t)(i + 1) * stride;
        if (direction == 0)
            from_x_to_y(r[i]);
        else if (direction == 1)
            from_y_to_z(r[i]);
        else
            out_of_z(flow->points + point, r[i]);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            flow->residual[FLOW_VARIABLES * point + (size_t)m] = r[i][m];
    }
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

void sp_lines_x(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 1; z < flow->extent[2] - 1; z++)
        for (int y = 1; y < flow->extent[1] - 1; y++)
            x_line(flow, z, y);
}

void sp_lines_y(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int z = 1; z < flow->extent[2] - 1; z++)
        for (int x = 1; x < flow->extent[0] - 1; x++)
            y_line(flow, z, x);
}

void sp_lines_z(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE) collapse(2)
    for (int y = 1; y < flow->extent[1] - 1; y++)
        for (int x = 1; x < flow->extent[0] - 1; x++)
            solve_line(flow, flow_index(flow, 0, y, x), 2);
}

void sp_lines(const struct flow *flow)
{
#pragma omp for schedule(LOOP_SCHEDULE)
    for (int z = 1; z < flow->extent[2] - 1; z++) {
        for (int y = 1; y < flow->extent[1] - 1; y++)
            x_line(flow, z, y);
        for (int x = 1; x < flow->extent[0] - 1; x++)
            y_line(flow, z, x);
    }
    sp_lines_z(flow);
}
