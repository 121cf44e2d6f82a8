/* A library as many are: what it is at is kept in static memory, so that there can be one of it in a process. It draws numbers that depend
 * on the seed it was opened with and on how many were drawn. */
static unsigned long state;
static int drawn;

void single_open(unsigned long seed) {
    state = seed;
    drawn = 0;
}

unsigned long single_draw(void) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return state >> 33 ^ (unsigned long)++drawn;
}
