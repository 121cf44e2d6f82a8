/*
 * Cutting of a mesh into zones, distribution of zones, and exchange of their values. See
 * zones.h.
 */
#include "nas/zones.h"

#include <math.h>
#include <string.h>

/* The ends of intervals that the points of a direction are cut into.  Each is larger than the one before by the same
 * factor.  Rounding is such that sizes never fall. */
static void cut_direction(int points, int count, double ratio, int size[ZONES_SIDE_MAX])
{
    const double factor = exp(log(ratio) / (count - 1));
    const double smallest = points * (factor - 1.0) / (pow(factor, count) - 1.0);
    int end = 0;
    for (int i = 1; i <= count; i++) {
        const int start = end;
        if (ratio > 1.0)
            end = (int)(smallest * (pow(factor, i) - 1.0) / (factor - 1.0) + 0.45);
        else
            end = i * points / count;
        size[i - 1] = end - start;
    }
}

void zones_lay_out(struct zones *zones, const struct zones_cut *cut)
{
    int width[ZONES_SIDE_MAX];
    int depth[ZONES_SIDE_MAX];
    cut_direction(cut->points[0], cut->zones[0], cut->ratio, width);
    cut_direction(cut->points[1], cut->zones[1], cut->ratio, depth);
    zones->cut = *cut;
    zones->count = cut->zones[0] * cut->zones[1];
    for (int i = 0; i < zones->count; i++) {
        const int column = i % cut->zones[0];
        const int row = i / cut->zones[0];
        zones->zone[i] = (struct zone){
            .extent = {width[column], depth[row], cut->points[2]},
            .column = column,
            .row = row,
        };
    }
}

static long points_of(const struct zone *zone)
{
    return (long)zone->extent[0] * zone->extent[1] * zone->extent[2];
}

/* The largest zone without an owner, the first of equal ones. */
static struct zone *largest_left(struct zones *zones)
{
    struct zone *largest = NULL;
    for (int i = 0; i < zones->count; i++) {
        struct zone *zone = &zones->zone[i];
        if (zone->owner < 0 && (largest == NULL || points_of(zone) > points_of(largest)))
            largest = zone;
    }
    return largest;
}

void zones_deal(struct zones *zones, int outer)
{
    long points[ZONES_MAX] = {0};
    for (int i = 0; i < zones->count; i++)
        zones->zone[i].owner = -1;
    for (struct zone *zone; (zone = largest_left(zones)) != NULL;) {
        int least = 0;
        for (int thread = 1; thread < outer; thread++)
            if (points[thread] < points[least])
                least = thread;
        zone->owner = least;
        points[least] += points_of(zone);
    }
}

/* The outer thread with most points per thread of its team, if every team were larger by this. */
static int most_loaded(const long points[], const int team[], int outer, int change)
{
    int most = 0;
    for (int thread = 1; thread < outer; thread++)
        if ((double)points[thread] * (team[most] + change) > (double)points[most] * (team[thread] + change))
            most = thread;
    return most;
}

void zones_size_teams(const struct zones *zones, int outer, int threads, int team[])
{
    long points[ZONES_MAX] = {0};
    long all = 0;
    for (int i = 0; i < zones->count; i++) {
        points[zones->zone[i].owner] += points_of(&zones->zone[i]);
        all += points_of(&zones->zone[i]);
    }
    int given = 0;
    for (int thread = 0; thread < outer; thread++) {
        team[thread] = (int)((double)points[thread] / (double)all * threads);
        if (team[thread] < 1)
            team[thread] = 1;
        given += team[thread];
    }
    for (; given < threads; given++)
        team[most_loaded(points, team, outer, 0)]++;
    /* Rounding up to one thread each may have given too many: takes them from the teams that lose least. */
    for (; given > threads; given--) {
        int least = -1;
        for (int thread = 0; thread < outer; thread++)
            if (team[thread] > 1 && (least < 0 || (double)points[thread] * (team[least] - 1) <
                                                      (double)points[least] * (team[thread] - 1)))
                least = thread;
        if (least < 0)
            return;
        team[least]--;
    }
}

static const struct zone *neighbour(const struct zones *zones, const struct zone *zone, int columns, int rows)
{
    const int *count = zones->cut.zones;
    const int column = (zone->column + columns + count[0]) % count[0];
    const int row = (zone->row + rows + count[1]) % count[1];
    return &zones->zone[row * count[0] + column];
}

/* Copies the states of points inside: of column `from` along x to column `to`, or of row along y. */
static void copy_column(const struct flow *source, int from, const struct flow *target, int to)
{
#pragma omp for schedule(static) collapse(2) nowait
    for (int z = 1; z < target->extent[2] - 1; z++)
        for (int y = 1; y < target->extent[1] - 1; y++)
            memcpy(target->u + FLOW_VARIABLES * flow_index(target, z, y, to),
                   source->u + FLOW_VARIABLES * flow_index(source, z, y, from), FLOW_VARIABLES * sizeof(double));
}

static void copy_row(const struct flow *source, int from, const struct flow *target, int to)
{
    const size_t inside = FLOW_VARIABLES * (size_t)(target->extent[0] - 2);
#pragma omp for schedule(static) nowait
    for (int z = 1; z < target->extent[2] - 1; z++)
        memcpy(target->u + FLOW_VARIABLES * flow_index(target, z, to, 1),
               source->u + FLOW_VARIABLES * flow_index(source, z, from, 1), inside * sizeof(double));
}

void zones_take_sides(const struct zones *zones, const struct zone *zone)
{
    const struct flow *west = &neighbour(zones, zone, -1, 0)->flow;
    const struct flow *east = &neighbour(zones, zone, 1, 0)->flow;
    const struct flow *south = &neighbour(zones, zone, 0, -1)->flow;
    const struct flow *north = &neighbour(zones, zone, 0, 1)->flow;
    copy_column(west, west->extent[0] - 2, &zone->flow, 0);
    copy_column(east, 1, &zone->flow, zone->extent[0] - 1);
    copy_row(south, south->extent[1] - 2, &zone->flow, 0);
    copy_row(north, 1, &zone->flow, zone->extent[1] - 1);
}
