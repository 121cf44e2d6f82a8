/*
 * NAS multi-zone benchmark BT-MZ: BT on zones of unequal size.
 *
 * Problem.  The flow problem of flow.h on each zone of a mesh (zones.h).  The sides of
 * zones grow along x and along y, so that the largest zone has 9 to 23 times the points
 * of the smallest: an even distribution of zones is the difficulty.
 *
 * Method.  In each step and zone that of BT (bt.c).
 *
 * Memory.  That of the flow problem, for the points of all zones.
 *
 * Source.  R. Van der Wijngaart and H. Jin, "NAS Parallel Benchmarks, Multi-Zone
 * Versions", NAS Technical Report NAS-03-010, NASA Ames, 2003; class sizes, reference
 * values, tolerance and operation count as published with NPB 3.4-MZ.
 */
#include "nas/bt_lines.h"
#include "nas/zones_run.h"

static const struct zones_class classes[CLASS_COUNT] = {
    [CLASS_S] = {{{2, 2}, {24, 24, 6}, 3.0}, 60, 0.010,
                 {0.1047687395830e+04, 0.9419911314792e+02, 0.2124737403068e+03,
                  0.1422173591794e+03, 0.1135441572375e+04},
                 {0.1775416062982e+03, 0.1875540250835e+02, 0.3863334844506e+02,
                  0.2634713890362e+02, 0.1965566269675e+03}, 0.0},
    [CLASS_W] = {{{4, 4}, {64, 64, 8}, 4.5}, 200, 0.0008,
                 {0.5562611195402e+05, 0.5151404119932e+04, 0.1080453907954e+05,
                  0.6576058591929e+04, 0.4528609293561e+05},
                 {0.7185154786403e+04, 0.7040472738068e+03, 0.1437035074443e+04,
                  0.8570666307849e+03, 0.5991235147368e+04}, 0.0},
    [CLASS_A] = {{{4, 4}, {128, 128, 16}, 4.5}, 200, 0.0008,
                 {0.5536703889522e+05, 0.5077835038405e+04, 0.1067391361067e+05,
                  0.6441179694972e+04, 0.4371926324069e+05},
                 {0.6716797714343e+04, 0.6512687902160e+03, 0.1332930740128e+04,
                  0.7848302089180e+03, 0.5429053878818e+04}, 0.0},
    [CLASS_B] = {{{8, 8}, {304, 208, 17}, 4.5}, 200, 0.0003,
                 {0.4461388343844e+06, 0.3799759138035e+05, 0.8383296623970e+05,
                  0.5301970201273e+05, 0.3618106851311e+06},
                 {0.4496733567600e+05, 0.3892068540524e+04, 0.8763825844217e+04,
                  0.5599040091792e+04, 0.4082652045598e+05}, 0.0},
    [CLASS_C] = {{{16, 16}, {480, 320, 28}, 4.5}, 200, 0.0001,
                 {0.3457703287806e+07, 0.3213621375929e+06, 0.7002579656870e+06,
                  0.4517459627471e+06, 0.2818715870791e+07},
                 {0.2059106993570e+06, 0.1680761129461e+05, 0.4080731640795e+05,
                  0.2836541076778e+05, 0.2136807610771e+06}, 0.0},
};

static void add(const struct flow *flow)
{
    flow_advance(flow, 1.0);
}

const struct zones_solver zones_solver = {
    .program = {"bt-mz", "NAS multi-zone benchmark BT-MZ: BT on zones of unequal size"},
    .kernel = "BT-MZ",
    .classes = classes,
    .operations = {3478.8, -17655.7, 28023.7, 0.0},
    .border_in_error = true,
    .phases = {flow_residual, bt_lines_x, bt_lines_y, bt_lines_z, add},
};
