/*
 * The schedule of loops whose turns any thread may take: static, so that threads find their own memory again.
 *
 * Built with -DLOOP_SCHEDULE=runtime (make scheduled), these loops take their schedule from OMP_SCHEDULE: to compare
 * static with dynamic and guided.  Loops that set memory up stay static, and so do loops of which a later one needs
 * the same turns in the same threads.
 */
#ifndef BENCH_SCHEDULE_H
#define BENCH_SCHEDULE_H

#ifndef LOOP_SCHEDULE
#define LOOP_SCHEDULE static
#endif

#endif
