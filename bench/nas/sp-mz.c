/*
 * NAS multi-zone benchmark SP-MZ: SP on zones of equal size.
 *
 * Problem.  The flow problem of flow.h on each zone of a mesh (zones.h).
 *
 * Method.  In each step and zone that of SP (sp.c).
 *
 * Memory.  That of the flow problem, for the points of all zones.
 *
 * Source.  R. Van der Wijngaart and H. Jin, "NAS Parallel Benchmarks, Multi-Zone
 * Versions", NAS Technical Report NAS-03-010, NASA Ames, 2003; class sizes, reference
 * values, tolerance and operation count as published with NPB 3.4-MZ.
 */
#include "nas/sp_lines.h"
#include "nas/zones_run.h"

static const struct zones_class classes[CLASS_COUNT] = {
    [CLASS_S] = {{{2, 2}, {24, 24, 6}, 1.0}, 100, 0.015,
                 {0.7698876173566e+01, 0.1517766790280e+01, 0.2686805141546e+01,
                  0.1893688083690e+01, 0.1369739859738e+02},
                 {0.9566808043467e+01, 0.3894109553741e+01, 0.4516022447464e+01,
                  0.4099103995615e+01, 0.7776038881521e+01}, 0.0},
    [CLASS_W] = {{{4, 4}, {64, 64, 8}, 1.0}, 400, 0.0015,
                 {0.1887636218359e+03, 0.1489637963542e+02, 0.4851711701400e+02,
                  0.3384633608154e+02, 0.4036632495857e+03},
                 {0.2975895149929e+02, 0.1341508175806e+02, 0.1585310846491e+02,
                  0.1450916426713e+02, 0.5854137431023e+02}, 0.0},
    [CLASS_A] = {{{4, 4}, {128, 128, 16}, 1.0}, 400, 0.0015,
                 {0.2800097900548e+03, 0.2268349014438e+02, 0.7000852739901e+02,
                  0.5000771004061e+02, 0.5552068537578e+03},
                 {0.3112046666578e+02, 0.1172197785348e+02, 0.1486616708032e+02,
                  0.1313680576292e+02, 0.7365834058154e+02}, 0.0},
    [CLASS_B] = {{{8, 8}, {304, 208, 17}, 1.0}, 400, 0.001,
                 {0.5190422977921e+04, 0.3655458539065e+03, 0.1261126592633e+04,
                  0.1002038338842e+04, 0.1075902511165e+05},
                 {0.5469182054223e+03, 0.4983658028989e+02, 0.1418301776602e+03,
                  0.1097717156175e+03, 0.1260195162174e+04}, 0.0},
    [CLASS_C] = {{{16, 16}, {480, 320, 28}, 1.0}, 400, 0.00067,
                 {0.5886814493676e+05, 0.3967324375474e+04, 0.1444126529019e+05,
                  0.1210582211196e+05, 0.1278941567976e+06},
                 {0.6414069213021e+04, 0.4069468353404e+03, 0.1585311908719e+04,
                  0.1270243185759e+04, 0.1441398372869e+05}, 0.0},
};

static void add(const struct flow *flow)
{
    flow_advance(flow, 1.0);
}

const struct zones_solver zones_solver = {
    .program = {"sp-mz", "NAS multi-zone benchmark SP-MZ: SP on zones of equal size"},
    .kernel = "SP-MZ",
    .classes = classes,
    .operations = {881.174, -4683.91, 11484.5, -19272.4},
    .border_in_error = true,
    .phases = {flow_residual, sp_lines_x, sp_lines_y, sp_lines_z, add},
};
