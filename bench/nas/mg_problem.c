/*
 * Classes and stencils of NAS kernel MG, as published with NPB 3.  See mg_problem.h.
 */
#include "nas/mg_problem.h"

const struct mg_stencil mg_laplacian = {-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0};
static const struct mg_stencil smoother_a = {-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0};
static const struct mg_stencil smoother_b = {-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0, 0.0};

const struct mg_class mg_classes[CLASS_COUNT] = {
    [CLASS_S] = {5, 4, &smoother_a, 0.5307707005734e-04},
    [CLASS_W] = {7, 4, &smoother_a, 0.6467329375339e-05},
    [CLASS_A] = {8, 4, &smoother_a, 0.2433365309069e-05},
    [CLASS_B] = {8, 20, &smoother_b, 0.1800564401355e-05},
    [CLASS_C] = {9, 20, &smoother_b, 0.5706732285740e-06},
};
