/*
 * Zones of the multi-zone benchmarks: a mesh of points that is cut into zones along x and y,
 * each a flow problem of its own, which exchange values at their borders.
 *
 * The mesh closes on itself along x and along y: the zones of the last column border on those
 * of the first, and the last row's on the first's.  Neighbours overlap: the border of a zone
 * lies where its neighbour has its first points inside.
 *
 * Zones are distributed over the threads of an outer team, largest first, each to the thread
 * with the least work.  Then all available threads are distributed over the outer threads as
 * their inner teams, in proportion to the points of each outer thread.  That is the bin
 * packing of the specification, without its preference for neighbouring zones: here they
 * share memory.
 *
 * Source.  R. Van der Wijngaart and H. Jin, "NAS Parallel Benchmarks, Multi-Zone Versions",
 * NAS Technical Report NAS-03-010, NASA Ames, 2003.
 */
#ifndef BENCH_NAS_ZONES_H
#define BENCH_NAS_ZONES_H

#include "nas/flow.h"

#include <stdbool.h>

/* Number of zones of the largest class. */
#define ZONES_MAX 256
#define ZONES_SIDE_MAX 16

/* Parameters of the cut of a mesh. */
struct zones_cut {
    int zones[2];                 /* along x and y */
    int points[FLOW_DIRECTIONS];  /* of the whole mesh */
    double ratio;                 /* of the largest zone's side to the smallest's; 1 where all are equal */
};

struct zone {
    int extent[FLOW_DIRECTIONS];
    int column; /* from 0, along x */
    int row;    /* from 0, along y */
    int owner;  /* outer thread that it belongs to */
    struct flow flow;
};

struct zones {
    struct zones_cut cut;
    int count;
    struct zone zone[ZONES_MAX]; /* by row, then column */
};

/* Cuts a mesh.  Fields and owners are left out. */
void zones_lay_out(struct zones *zones, const struct zones_cut *cut);

/* Gives each zone an owner, one of `outer` outer threads. */
void zones_deal(struct zones *zones, int outer);

/* Sets the sizes of the inner teams of the outer threads, which have `threads` threads in total: in proportion to their
 * points, and at least one each. */
void zones_size_teams(const struct zones *zones, int outer, int threads, int team[]);

/* Copies the neighbouring values of a zone's four neighbours to its sides.  Only points inside are read and only points
 * on sides written, so all zones may do this at once, but none may change inside meanwhile. */
void zones_take_sides(const struct zones *zones, const struct zone *zone);

#endif
