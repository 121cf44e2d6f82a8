/*
 * The right-hand side of NAS kernel MG.
 */
#ifndef BENCH_NAS_MG_CHARGES_H
#define BENCH_NAS_MG_CHARGES_H

#include "nas/mg_grid.h"

/*
 * Puts charges on a grid of zeros: +1 on the ten points where a pseudorandom
 * field is greatest, and -1 on the ten where it is least.
 */
void place_mg_charges(const struct mg_grid *grid);

#endif
