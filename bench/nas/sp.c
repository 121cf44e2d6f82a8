/*
 * NAS pseudo-application SP, "scalar pentadiagonal".
 *
 * Problem.  The flow problem of flow.h, by implicit time steps.
 *
 * Method.  The step's linear operator is replaced by a product of three, one for
 * each direction (Beam and Warming), and each of these is diagonalised point by
 * point (Pulliam and Chaussee): in characteristic variables the five equations
 * part.  What is left along each line of the grid are scalar systems with five
 * diagonals, one matrix for the three waves that move with the flow and one for
 * each of the two sound waves, solved by elimination without pivoting.  Between
 * directions the variables are turned from those of one to those of the next.
 *
 * The lines are independent: x and y lines are shared out to threads by plane of
 * z, z lines by plane of y, where each thread reads what all others have written.
 *
 * Memory.  That of the flow problem; buffers for a line on each thread's stack.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, section 3; class sizes, reference norms, tolerance and operation
 * count as published with NPB 3.
 */
#include "nas/flow_run.h"

#include <math.h>

#define LINE_MAX FLOW_MAX_EXTENT

static const struct flow_class classes[CLASS_COUNT] = {
    [CLASS_S] = {12, 100, 0.015,
                 {2.7470315451339479e-02, 1.0360746705285417e-02, 1.6235745065095532e-02,
                  1.5840557224455615e-02, 3.4849040609362460e-02},
                 {2.7289258557377227e-05, 1.0364446640837285e-05, 1.6154798287166471e-05,
                  1.5750704994480102e-05, 3.4177666183390531e-05}, 0.0},
    [CLASS_W] = {36, 400, 0.0015,
                 {0.1893253733584e-02, 0.1717075447775e-03, 0.2778153350936e-03,
                  0.2887475409984e-03, 0.3143611161242e-02},
                 {0.7542088599534e-04, 0.6512852253086e-05, 0.1049092285688e-04,
                  0.1128838671535e-04, 0.1212845639773e-03}, 0.0},
    [CLASS_A] = {64, 400, 0.0015,
                 {2.4799822399300195, 1.1276337964368832, 1.5028977888770491,
                  1.4217816211695179, 2.1292113035138280},
                 {1.0900140297820550e-04, 3.7343951769282091e-05, 5.0092785406541633e-05,
                  4.7671093939528255e-05, 1.3621613399213001e-04}, 0.0},
    [CLASS_B] = {102, 400, 0.001,
                 {0.6903293579998e+02, 0.3095134488084e+02, 0.4103336647017e+02,
                  0.3864769009604e+02, 0.5643482272596e+02},
                 {0.9810006190188e-02, 0.1022827905670e-02, 0.1720597911692e-02,
                  0.1694479428231e-02, 0.1847456263981e-01}, 0.0},
    [CLASS_C] = {162, 400, 0.00067,
                 {0.5881691581829e+03, 0.2454417603569e+03, 0.3293829191851e+03,
                  0.3081924971891e+03, 0.4597223799176e+03},
                 {0.2598120500183e+00, 0.2590888922315e-01, 0.5132886416320e-01,
                  0.4806073419454e-01, 0.5483377491301e+00}, 0.0},
};

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

/* From those of x to those of y. */
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

/* From those of y to those of z. */
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

/* Back from those of z. */
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

/* The rows of inner point 1 to n - 2, of waves that move with the flow plus so many times the speed of sound. */
static void build_bands(const struct flow *flow, const struct flow_point *line, size_t stride, int direction,
                        double sounds, band *rows)
{
    const int n = flow->n;
    const double convect = flow->dt * flow->first;
    const double diffuse = flow->dt * flow->second;
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
    const int inner = flow->n - 2;
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

static void solve(const struct flow *flow)
{
    const size_t n = (size_t)flow->n;
#pragma omp for schedule(static)
    for (size_t z = 1; z < n - 1; z++) {
        for (size_t y = 1; y < n - 1; y++)
            solve_line(flow, (z * n + y) * n, 0);
        for (size_t x = 1; x < n - 1; x++)
            solve_line(flow, z * n * n + x, 1);
    }
#pragma omp for schedule(static)
    for (size_t y = 1; y < n - 1; y++)
        for (size_t x = 1; x < n - 1; x++)
            solve_line(flow, y * n + x, 2);
}

int main(int argc, char **argv)
{
    static const struct flow_solver solver = {
        .program = {"sp", "NAS pseudo-application SP: a flow by scalar pentadiagonal systems"},
        .kernel = "SP",
        .classes = classes,
        .operations = {881.174, -4683.91, 11484.5, -19272.4},
        .solve = solve,
        .factor = 1.0,
    };
    return run_flow(&solver, argc, argv);
}
