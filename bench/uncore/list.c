/*
 * A cyclic list through an area of memory.  See list.h.
 */
#include "uncore/list.h"

void link_list(struct list *list, enum order order, uint64_t seed)
{
    struct node *nodes = list->nodes;
    const size_t length = list->length;
    for (size_t i = 0; i < length; i++)
        nodes[i].next = &nodes[order == ORDER_SEQUENTIAL ? (i + 1) % length : i];
    if (order == ORDER_RANDOM) {
        /* Sattolo's shuffle: a random permutation that is one cycle. */
        uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        for (size_t i = length - 1; i > 0; i--) {
            const size_t other = (size_t)random_below(&state, i);
            struct node *next = nodes[i].next;
            nodes[i].next = nodes[other].next;
            nodes[other].next = next;
        }
    }
    struct node *node = nodes;
    for (size_t place = 0; place < length; place++) {
        node->place = place;
        node = node->next;
    }
}

struct node *node_at(const struct list *list, uint64_t place)
{
    struct node *node = list->nodes;
    for (uint64_t step = place % list->length; step > 0; step--)
        node = node->next;
    return node;
}

bool visits_all_once(const struct list *list)
{
    const struct node *node = list->nodes;
    for (size_t steps = 1; steps <= list->length; steps++) {
        node = node->next;
        if (node == list->nodes)
            return steps == list->length;
    }
    return false;
}
