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
#include "nas/bt_lines.h"
#include "nas/flow_run.h"

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

int main(int argc, char **argv)
{
    static const struct flow_solver solver = {
        .program = {"bt", "NAS pseudo-application BT: a flow by block tridiagonal systems"},
        .kernel = "BT",
        .classes = classes,
        .operations = {3478.8, -17655.7, 28023.7, 0.0},
        .solve = bt_lines,
        .factor = 1.0,
    };
    return run_flow(&solver, argc, argv);
}
