/*
 * NAS pseudo-application LU, "lower-upper".
 *
 * Problem.  The flow problem of flow.h, by implicit time steps, and an integral
 * of the pressure over a surface inside.
 *
 * Method.  The step's linear system, of one 5 x 5 block for each point and one
 * for each of its six neighbours, is solved approximately by one step of
 * symmetric successive over-relaxation: a sweep from the corner where all
 * coordinates are least, in which each point needs its three neighbours before
 * it, and one back, in which it needs the three behind.  A point's own block has
 * only viscous terms, which makes it lower triangular.
 *
 * Within a sweep planes of z follow each other.  In each plane threads have
 * ranges of y; a thread may begin with a plane when its neighbour has done its
 * range of the same: after a few planes all work, each one plane behind the one
 * it waits for.  Waiting is by spinning, with the CPU given away when it takes long.
 *
 * Memory.  That of the flow problem.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, section 3; class sizes, reference values, tolerance and operation
 * count as published with NPB 3.
 */
#include "nas/flow_jacobian.h"
#include "nas/flow_run.h"
#include "nas/pipeline.h"

#include <omp.h>

#define RELAXATION 1.2

static const struct flow_class classes[CLASS_COUNT] = {
    [CLASS_S] = {12, 50, 0.5,
                 {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03,
                  1.5029584435994323e-03, 3.4264073155896461e-02},
                 {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05,
                  5.8474222595157350e-05, 1.3103347914111294e-03}, 7.8418928865937083},
    [CLASS_W] = {33, 300, 0.0015,
                 {0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01,
                  0.2326187750252e+01, 0.2826799444189e+02},
                 {0.4867877144216e+00, 0.5064652880982e-01, 0.9281818101960e-01,
                  0.8570126542733e-01, 0.1084277417792e+01}, 0.1161399311023e+02},
    [CLASS_A] = {64, 250, 2.0,
                 {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02,
                  1.7845301160418537e+02, 1.8384760349464247e+03},
                 {2.9964085685471943e+01, 2.8194576365003349e+00, 7.3473412698774742e+00,
                  6.7139225687777051e+00, 7.0715315688392578e+01}, 2.6030925604886277e+01},
    [CLASS_B] = {102, 250, 2.0,
                 {3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02,
                  7.7812774739425265e+02, 7.3087969592545314e+03},
                 {1.1401176380212709e+02, 8.1098963655421574e+00, 2.8480597317698308e+01,
                  2.5905394567832939e+01, 2.6054907504857413e+02}, 4.7887162703308227e+01},
    [CLASS_C] = {162, 250, 2.0,
                 {1.03766980323537846e+04, 8.92212458801008552e+02, 2.56238814582660871e+03,
                  2.19194343857831427e+03, 1.78078057261061185e+04},
                 {2.15986399716949279e+02, 1.55789559239863600e+01, 5.41318863077207766e+01,
                  4.82262643154045421e+01, 4.55902910043250358e+02}, 6.66404553572181300e+01},
};

/* Adds what the neighbour before (side -1) or after (+1) contributes: its block times its change. */
static inline __attribute__((always_inline)) void
add_neighbour(const struct flow *flow, size_t point, int direction, double side, double sum[FLOW_VARIABLES])
{
    const double convect = side * flow->dt * flow->first;
    const double diffuse = flow->dt * flow->second;
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
    const double diffuse = 2.0 * flow->dt * flow->second;
    flow_block block = {{0.0}};
    for (int direction = 0; direction < FLOW_DIRECTIONS; direction++) {
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
static void lower_row(const struct flow *flow, size_t z, size_t y)
{
    const size_t n = (size_t)flow->n;
    for (size_t x = 1; x < n - 1; x++) {
        const size_t point = (z * n + y) * n + x;
        double *v = flow->residual + FLOW_VARIABLES * point;
        double before[FLOW_VARIABLES] = {0.0};
        add_neighbour(flow, point - n * n, 2, -1.0, before);
        add_neighbour(flow, point - n, 1, -1.0, before);
        add_neighbour(flow, point - 1, 0, -1.0, before);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            v[m] = flow->dt * v[m] - RELAXATION * before[m];
        solve_own(flow, flow->points + point, v);
    }
}

/* One row of the sweep down. */
static void upper_row(const struct flow *flow, size_t z, size_t y)
{
    const size_t n = (size_t)flow->n;
    for (size_t x = n - 2; x > 0; x--) {
        const size_t point = (z * n + y) * n + x;
        double *v = flow->residual + FLOW_VARIABLES * point;
        double behind[FLOW_VARIABLES] = {0.0};
        add_neighbour(flow, point + n * n, 2, 1.0, behind);
        add_neighbour(flow, point + n, 1, 1.0, behind);
        add_neighbour(flow, point + 1, 0, 1.0, behind);
        solve_own(flow, flow->points + point, behind);
        for (int m = 0; m < FLOW_VARIABLES; m++)
            v[m] -= RELAXATION * behind[m];
    }
}

static void solve(const struct flow *flow)
{
    static struct pipeline pipeline;
    const size_t n = (size_t)flow->n;
    const size_t rows = n - 2;
    const size_t threads = (size_t)omp_get_num_threads();
    const size_t thread = (size_t)omp_get_thread_num();
    const size_t from = 1 + rows * thread / threads;
    const size_t to = 1 + rows * (thread + 1) / threads;

    pipeline_begin(&pipeline);
    for (size_t z = 1; z < n - 1; z++) {
        pipeline_await(&pipeline, (int)thread - 1, z);
        for (size_t y = from; y < to; y++)
            lower_row(flow, z, y);
        pipeline_done(&pipeline, (int)thread, z);
    }
    pipeline_begin(&pipeline);
    for (size_t z = n - 2; z > 0; z--) {
        pipeline_await(&pipeline, (int)thread + 1, n - 1 - z);
        for (size_t y = to; y > from; y--)
            upper_row(flow, z, y - 1);
        pipeline_done(&pipeline, (int)thread, n - 1 - z);
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
static double surface_integral(const struct flow *flow)
{
    const int from[FLOW_DIRECTIONS] = {1, 1, 2};
    const int to[FLOW_DIRECTIONS] = {flow->n - 2, flow->n - 3, flow->n - 2};
    const double h = 1.0 / (flow->n - 1);
    double sum = 0.0;
    for (int direction = 0; direction < FLOW_DIRECTIONS; direction++)
        sum += sides(flow, direction, from, to);
    return 0.25 * h * h * sum;
}

int main(int argc, char **argv)
{
    static const struct flow_solver solver = {
        .program = {"lu", "NAS pseudo-application LU: a flow by symmetric over-relaxation"},
        .kernel = "LU",
        .classes = classes,
        .operations = {1984.77, -10923.3, 27770.9, -144010.0},
        .solve = solve,
        .factor = 1.0 / (RELAXATION * (2.0 - RELAXATION)),
        .integral = surface_integral,
    };
    return run_flow(&solver, argc, argv);
}
