/*
 * The NAS pseudorandom number generator.  See random.h.
 *
 * Unsigned 64-bit products wrap modulo 2^64, and 2^46 divides 2^64, so the low
 * 46 bits of a wrapped product are exact: reduction is a mask, and may even be
 * left out of a chain of multiplications until a value is wanted.
 */
#include "common/random.h"

static const uint64_t mask46 = (UINT64_C(1) << 46) - 1;

/* The value in (0, 1) of a reduced seed; exact, as 46 bits fit a double. */
static double unit_value(uint64_t x)
{
    /* Signed, because that conversion is a single instruction on most CPUs. */
    return 0x1p-46 * (double)(int64_t)x;
}

double randlc(uint64_t *x, uint64_t a)
{
    *x = (a * *x) & mask46;
    return unit_value(*x);
}

void vranlc(size_t n, uint64_t *x, uint64_t a, double *y)
{
    /* Unreduced between steps: the dependent chain is one multiplication. */
    uint64_t state = *x;
    for (size_t i = 0; i < n; i++) {
        state *= a;
        y[i] = unit_value(state & mask46);
    }
    *x = state & mask46;
}

uint64_t randlc_power(uint64_t a, uint64_t n)
{
    uint64_t power = 1;
    for (uint64_t square = a; n != 0; n >>= 1, square *= square)
        if (n & 1)
            power *= square;
    return power & mask46;
}

uint64_t randlc_skip(uint64_t x, uint64_t a, uint64_t n)
{
    return (randlc_power(a, n) * x) & mask46;
}
