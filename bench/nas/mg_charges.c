/*
 * The right-hand side of NAS kernel MG.
 *
 * Problem.  Number the grid's points, x fastest and z slowest, and give to each
 * in turn a number of the random stream.  Find the ten points with the greatest
 * numbers and the ten with the least.
 *
 * Method.  The numbers are not stored.  Each thread jumps to the start of each
 * of its rows in the stream and keeps lists of the best ten so far; the lists
 * are merged at the end.  Numbers of the stream do not repeat within its period,
 * so the points do not depend on the order of search or merging.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel MG (there routine zran3 of the sample code).
 */
#include "nas/mg_charges.h"

#include "common/random.h"

#include <stdint.h>

#define SEED UINT64_C(314159265)
#define CHARGES 10

struct candidate {
    double merit;
    int z, y, x;
};

/* The best candidates so far, the best of them first. */
struct ranking {
    int length;
    struct candidate list[CHARGES];
};

/* Lets a candidate take its place among the best, if it has one. */
static void offer(struct ranking *best, const struct candidate *candidate)
{
    int place = best->length;
    if (place == CHARGES) {
        if (candidate->merit <= best->list[CHARGES - 1].merit)
            return;
        place--;
    } else {
        best->length++;
    }
    while (place > 0 && best->list[place - 1].merit < candidate->merit) {
        best->list[place] = best->list[place - 1];
        place--;
    }
    best->list[place] = *candidate;
}

static void merge(struct ranking *best, const struct ranking *others)
{
    for (int i = 0; i < others->length; i++)
        offer(best, &others->list[i]);
}

/* Offers each point of a row for its number, and for its number's opposite. */
static void search_row(int n, int z, int y, struct ranking *greatest, struct ranking *least)
{
    const uint64_t numbers_before = ((uint64_t)z * (uint64_t)n + (uint64_t)y) * (uint64_t)n;
    uint64_t seed = randlc_skip(SEED, RANDLC_MULTIPLIER, numbers_before);
    double number[MG_MAX_EXTENT];

    vranlc((size_t)n, &seed, RANDLC_MULTIPLIER, number);
    for (int x = 0; x < n; x++) {
        offer(greatest, &(struct candidate){number[x], z, y, x});
        offer(least, &(struct candidate){-number[x], z, y, x});
    }
}

static void place(const struct mg_grid *grid, const struct ranking *points, double charge)
{
    for (int i = 0; i < points->length; i++) {
        const struct candidate *point = &points->list[i];
        double *row = mg_row(grid, point->z, point->y);
        row[point->x] = charge;
        mg_close_row(row, grid->n);
    }
}

void place_mg_charges(const struct mg_grid *grid)
{
    const int n = grid->n;
    struct ranking greatest = {.length = 0};
    struct ranking least = {.length = 0};

#pragma omp parallel
    {
        struct ranking own_greatest = {.length = 0};
        struct ranking own_least = {.length = 0};

#pragma omp for collapse(2) schedule(static) nowait
        for (int z = 0; z < n; z++)
            for (int y = 0; y < n; y++)
                search_row(n, z, y, &own_greatest, &own_least);
#pragma omp critical
        {
            merge(&greatest, &own_greatest);
            merge(&least, &own_least);
        }
    }
    place(grid, &greatest, 1.0);
    place(grid, &least, -1.0);
}
