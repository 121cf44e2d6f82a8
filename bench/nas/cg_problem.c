/*
 * Classes of NAS kernel CG, as published with NPB 3.  See cg_problem.h.
 */
#include "nas/cg_problem.h"

const struct cg_class cg_classes[CLASS_COUNT] = {
    [CLASS_S] = {1400, 7, 15, 10.0, 8.5971775078648},
    [CLASS_W] = {7000, 8, 15, 12.0, 10.362595087124},
    [CLASS_A] = {14000, 11, 15, 20.0, 17.130235054029},
    [CLASS_B] = {75000, 13, 75, 60.0, 22.712745482631},
    [CLASS_C] = {150000, 15, 75, 110.0, 28.973605592845},
};

double cg_operations(const struct cg_class *problem)
{
    const double row = problem->nonzer * (problem->nonzer + 1.0);
    return 2.0 * problem->niter * problem->na * (3.0 + row + CG_STEPS * (5.0 + row) + 3.0);
}
