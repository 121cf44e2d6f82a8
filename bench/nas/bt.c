/*
 * NAS pseudo-application BT, "block tridiagonal".
 *
 * Problem.  The flow problem of flow.h, by implicit time steps.
 *
 * Method.  The step's linear operator is replaced by a product of three, one for
 * each direction (Beam and Warming).  Along each line of the grid that leaves a
 * system with three diagonals of 5 x 5 blocks, solved by elimination of blocks
 * without pivoting: each row's diagonal block is brought to one as soon as the
 * row above has been taken off, so of the rows behind only the upper blocks and
 * the right-hand side are kept.
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
#include "nas/flow_jacobian.h"
#include "nas/flow_run.h"

#define LINE_MAX FLOW_MAX_EXTENT

static const struct flow_class classes[CLASS_COUNT] = {
    [CLASS_S] = {12, 60, 0.010,
                 {1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02,
                  2.6436421275166801e-02, 1.9211784131744430e-01},
                 {4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05,
                  7.3821238632439731e-05, 8.9269630987491446e-04}, 0.0},
    [CLASS_W] = {24, 200, 0.0008,
                 {0.1125590409344e+03, 0.1180007595731e+02, 0.2710329767846e+02,
                  0.2469174937669e+02, 0.2638427874317e+03},
                 {0.4419655736008e+01, 0.4638531260002e+00, 0.1011551749967e+01,
                  0.9235878729944e+00, 0.1018045837718e+02}, 0.0},
    [CLASS_A] = {64, 200, 0.0008,
                 {1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01,
                  2.3665622544678910e+01, 2.5278963211748344e+02},
                 {4.2348416040525025e+00, 4.4390282496995698e-01, 9.6692480136345650e-01,
                  8.8302063039765474e-01, 9.7379901770829278e+00}, 0.0},
    [CLASS_B] = {102, 200, 0.0003,
                 {1.4233597229287254e+03, 9.9330522590150238e+01, 3.5646025644535285e+02,
                  3.2485447959084092e+02, 3.2707541254659363e+03},
                 {5.2969847140936856e+01, 4.4632896115670668e+00, 1.3122573342210174e+01,
                  1.2006925323559144e+01, 1.2459576151035986e+02}, 0.0},
    [CLASS_C] = {162, 200, 0.0001,
                 {0.62398116551764615e+04, 0.50793239190423964e+03, 0.15423530093013596e+04,
                  0.13302387929291190e+04, 0.11604087428436455e+05},
                 {0.16462008369091265e+03, 0.11497107903824313e+02, 0.41207446207461508e+02,
                  0.37087651059694167e+02, 0.36211053051841265e+03}, 0.0},
};

/* The diagonal block brought to one: solves it for another block and for a vector, which it replaces. */
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
    const double convect = side * flow->dt * flow->first;
    const double diffuse = flow->dt * flow->second;
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
    const double diffuse = 2.0 * flow->dt * flow->second;
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
    const int last = flow->n - 2;
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
        .program = {"bt", "NAS pseudo-application BT: a flow by block tridiagonal systems"},
        .kernel = "BT",
        .classes = classes,
        .operations = {3478.8, -17655.7, 28023.7, 0.0},
        .solve = solve,
        .factor = 1.0,
    };
    return run_flow(&solver, argc, argv);
}
