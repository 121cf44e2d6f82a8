/*
 * NAS multi-zone benchmark LU-MZ: LU on 16 zones of equal size.
 *
 * Problem.  The flow problem of flow.h on each zone of a mesh (zones.h), and an integral of
 * the pressure over a surface inside each.
 *
 * Method.  In each step and zone that of LU (lu.c).  The threads of an inner team pass the
 * planes of a sweep on to each other by flags, on which they spin without limit
 * (handover.h).  Planes are small and there are few of them: with more threads than CPUs
 * nearly every plane costs a time slice of a CPU, milliseconds for microseconds of work.
 *
 * Memory.  That of the flow problem, for the points of all zones.
 *
 * Source.  R. Van der Wijngaart and H. Jin, "NAS Parallel Benchmarks, Multi-Zone Versions",
 * NAS Technical Report NAS-03-010, NASA Ames, 2003; class sizes, reference values, tolerance
 * and operation count as published with NPB 3.4-MZ.
 */
#include "nas/handover.h"
#include "nas/lu_sweeps.h"
#include "nas/zones_run.h"

static const struct zones_class classes[CLASS_COUNT] = {
    [CLASS_S] = {{{4, 4}, {24, 24, 6}, 1.0}, 50, 0.5,
                 {0.3778579699366e+01, 0.3120418698065e+00, 0.8386213407018e+00,
                  0.4452165980488e+00, 0.7808656756434e+01},
                 {0.2429480066305e+02, 0.9072817470024e+01, 0.1032621825644e+02,
                  0.9256791727838e+01, 0.1639045777714e+02}, 0.4964435445706e+02},
    [CLASS_W] = {{{4, 4}, {64, 64, 8}, 1.0}, 300, 0.0015,
                 {0.8285060230339e+03, 0.5753415004693e+02, 0.2023477570531e+03,
                  0.1586275182502e+03, 0.1733925947816e+04},
                 {0.7514670702651e+02, 0.9776687033238e+01, 0.2141754291209e+02,
                  0.1685405918675e+02, 0.1856944519722e+03}, 0.3781055348911e+03},
    [CLASS_A] = {{{4, 4}, {128, 128, 16}, 1.0}, 250, 2.0,
                 {0.1131574877175e+04, 0.7965206944742e+02, 0.2705587159526e+03,
                  0.2129567530746e+03, 0.2260584655432e+04},
                 {0.1115694885382e+03, 0.1089257673798e+02, 0.2905379922066e+02,
                  0.2216126755530e+02, 0.2501762341026e+03}, 0.5904992211511e+03},
    [CLASS_B] = {{{4, 4}, {304, 208, 17}, 1.0}, 250, 2.0,
                 {0.1734656959567e+05, 0.1238977748533e+04, 0.4123885357100e+04,
                  0.3613705834056e+04, 0.3531187871586e+05},
                 {0.1781612313296e+04, 0.1177971120769e+03, 0.4233792871440e+03,
                  0.3577260438230e+03, 0.3659958544012e+04}, 0.6107041476456e+04},
    [CLASS_C] = {{{4, 4}, {480, 320, 28}, 1.0}, 250, 2.0,
                 {0.4108743427233e+05, 0.3439004802235e+04, 0.9961331392486e+04,
                  0.8321426758084e+04, 0.7463792419218e+05},
                 {0.3429276307955e+04, 0.2336680861825e+03, 0.8216363109621e+03,
                  0.7143809828225e+03, 0.7057470798773e+04}, 0.1125826349653e+05},
};

static void prepare(struct flow *flow)
{
    flow->handover = make_handover(HANDOVER_FLAGS);
}

static void sweep_and_add(const struct flow *flow)
{
    lu_sweeps(flow);
    flow_advance(flow, LU_FACTOR);
}

const struct zones_solver zones_solver = {
    .program = {"lu-mz", "NAS multi-zone benchmark LU-MZ: LU on 16 zones, with threads that spin on flags"},
    .kernel = "LU-MZ",
    .classes = classes,
    .operations = {1984.77, -10923.3, 27770.9, -144010.0},
    .spacing_of_zone = true,
    .prepare = prepare,
    .phases = {sweep_and_add, flow_residual},
    .integral = lu_surface_integral,
};
