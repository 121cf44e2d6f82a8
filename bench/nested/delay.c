/*
 * A delay.  See delay.h.
 */
#include "nested/delay.h"

#include "common/timer.h"

#define CALIBRATION_STEPS 200000
#define CALIBRATION_TRIALS 20

void delay(long long length)
{
    /* Volatile: the loop must stay; on the stack: it disturbs no other thread. */
    for (volatile long long step = 0; step < length;)
        step = step + 1;
}

long long calibrated_delay(double nanoseconds)
{
    double fastest = 0.0;
    /* The fastest of several trials: the others may have been interrupted. */
    for (int trial = 0; trial < CALIBRATION_TRIALS; trial++) {
        const double start = wall_seconds();
        delay(CALIBRATION_STEPS);
        const double seconds = wall_seconds() - start;
        if (trial == 0 || seconds < fastest)
            fastest = seconds;
    }
    return (long long)(nanoseconds * CALIBRATION_STEPS / (1e9 * fastest) + 0.5);
}
