/* A typical library for one caller: its state is in static memory, so that a process can have only one. It draws numbers that depend on the
 * seed with which it was opened and on the number of earlier draws. */
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
