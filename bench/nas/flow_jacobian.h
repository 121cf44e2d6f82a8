/*
 * Derivatives of the flow problem's fluxes by the state, at one point and along
 * one direction, for the implicit steps of BT and LU.
 *
 * Of the flux F (flow_residual.c) and of the viscous terms G, without their
 * viscosity.  A linear system along a direction has blocks of them: a point's
 * neighbour before it, after it, and itself enter by
 *
 *     -dt (D1 F' + D2 (viscosity G' + diffusion))
 *
 * For LU products of such a block with a vector are enough, and as few of its
 * elements differ from zero they are written out; BT needs the matrices.
 */
#ifndef BENCH_NAS_FLOW_JACOBIAN_H
#define BENCH_NAS_FLOW_JACOBIAN_H

#include "nas/flow.h"

typedef double flow_block[FLOW_VARIABLES][FLOW_VARIABLES];

/* out = F' v */
static inline __attribute__((always_inline)) void
flux_product(const struct flow_point *p, int direction, const double v[FLOW_VARIABLES], double out[FLOW_VARIABLES])
{
    const double *u = p->velocity;
    const double w = u[direction];
    const double enthalpy = p->energy + p->pressure * p->inverse_density;
    const double pressure =
        FLOW_GAS * (v[4] - u[0] * v[1] - u[1] * v[2] - u[2] * v[3] + p->kinetic * v[0]);
    const double across = v[1 + direction] - w * v[0];
    out[0] = v[1 + direction];
    for (int a = 0; a < FLOW_DIRECTIONS; a++)
        out[1 + a] = u[a] * across + w * v[1 + a];
    out[1 + direction] += pressure;
    out[4] = (v[4] + pressure) * w + enthalpy * across;
}

/* out = G' v */
static inline __attribute__((always_inline)) void
viscous_product(const struct flow_point *p, int direction, const double v[FLOW_VARIABLES],
                double out[FLOW_VARIABLES])
{
    const double *u = p->velocity;
    double change[FLOW_DIRECTIONS];
    double kinetic = 0.0;
    for (int a = 0; a < FLOW_DIRECTIONS; a++) {
        change[a] = p->inverse_density * (v[1 + a] - u[a] * v[0]);
        kinetic += u[a] * change[a];
        out[1 + a] = (a == direction ? 4.0 / 3.0 : 1.0) * change[a];
    }
    out[0] = 0.0;
    out[4] = (1.0 - FLOW_CONDUCTION) * kinetic + 1.0 / 3.0 * u[direction] * change[direction] +
             FLOW_CONDUCTION * p->inverse_density * (v[4] - p->energy * v[0]);
}

/* f = F' */
static inline __attribute__((always_inline)) void
flux_matrix(const struct flow_point *p, int direction, flow_block f)
{
    const double *u = p->velocity;
    const double w = u[direction];
    const double enthalpy = p->energy + p->pressure * p->inverse_density;
    f[0][0] = 0.0;
    f[0][4] = 0.0;
    f[4][0] = (FLOW_GAS * p->kinetic - enthalpy) * w;
    f[4][4] = FLOW_GAMMA * w;
    for (int a = 0; a < FLOW_DIRECTIONS; a++) {
        const double along = a == direction ? 1.0 : 0.0;
        f[0][1 + a] = along;
        f[1 + a][0] = along * FLOW_GAS * p->kinetic - u[a] * w;
        f[1 + a][4] = along * FLOW_GAS;
        for (int b = 0; b < FLOW_DIRECTIONS; b++)
            f[1 + a][1 + b] = (b == direction ? u[a] : 0.0) + (a == b ? w : 0.0) - along * FLOW_GAS * u[b];
        f[4][1 + a] = along * enthalpy - FLOW_GAS * u[a] * w;
    }
}

/* Adds G', times this factor, to a block, which touches its first column, its diagonal and its last
 * row. */
static inline __attribute__((always_inline)) void
add_viscous_matrix(const struct flow_point *p, int direction, double factor, flow_block g)
{
    const double *u = p->velocity;
    const double scaled = factor * p->inverse_density;
    for (int a = 0; a < FLOW_DIRECTIONS; a++) {
        const double weight = a == direction ? 4.0 / 3.0 : 1.0;
        g[1 + a][0] -= scaled * weight * u[a];
        g[1 + a][1 + a] += scaled * weight;
        g[4][1 + a] += scaled * (weight - FLOW_CONDUCTION) * u[a];
        g[4][0] -= scaled * (weight - FLOW_CONDUCTION) * u[a] * u[a];
    }
    g[4][0] -= scaled * FLOW_CONDUCTION * p->energy;
    g[4][4] += scaled * FLOW_CONDUCTION;
}

#endif
