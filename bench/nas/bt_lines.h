/*
 * Solution of BT's linear system for a step: block tridiagonal systems along lines of the
 * grid.
 *
 * Each function is called by all threads of a parallel region, which share its lines, and
 * ends with a barrier.
 */
#ifndef BENCH_NAS_BT_LINES_H
#define BENCH_NAS_BT_LINES_H

#include "nas/flow.h"

/* Turns the residual into the change of the state: along x, then y, then z.  Lines along x and y of a plane of z are
 * solved by the same thread while the plane is in its cache. */
void bt_lines(const struct flow *flow);

/* The same in three steps, to be called in this order. */
void bt_lines_x(const struct flow *flow);
void bt_lines_y(const struct flow *flow);
void bt_lines_z(const struct flow *flow);

#endif
