/*
 * A cyclic list through all lines of an area of memory.
 *
 * Problem: the cost of a load beyond the private caches can only be seen with
 * loads that are not overlapped.  Idea: every node is one cache line and names the
 * next, so the address of a load is the result of the one before; in random order
 * no prefetcher predicts it.  Several chains through the same list, from distant
 * positions, give a processor that many loads at a time.  Every node knows its
 * place in the cycle, so the end of a walk proves its length.
 */
#ifndef BENCH_UNCORE_LIST_H
#define BENCH_UNCORE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES 64
#define CHAINS_MAX 8

struct node {
    _Alignas(LINE_BYTES) struct node *next;
    uint64_t place; /* from node 0, along the cycle */
};

struct list {
    struct node *nodes;
    size_t length;
};

enum order { ORDER_RANDOM, ORDER_SEQUENTIAL };

/* Links the nodes to one cycle, numbers their places and writes all their memory: the first caller decides its NUMA
 * node. */
void link_list(struct list *list, enum order order, uint64_t seed);

/* The node at this place, modulo the length, found by walking there. */
struct node *node_at(const struct list *list, uint64_t place);

/* Whether the cycle from node 0 returns after as many steps as there are nodes, and not before: then it visits each
 * node once. */
bool visits_all_once(const struct list *list);

/* The next of a stream of pseudorandom numbers (xorshift); the state is never zero. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* A number below the bound, which is below 2^32. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
    return ((next_random(state) >> 32) * bound) >> 32;
}

#endif
