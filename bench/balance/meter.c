/*
 * Meter of other load on the machine.  See meter.h.
 */
#define _GNU_SOURCE

#include "balance/meter.h"

#include "balance/clock.h"
#include "common/output.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* The first line of /proc/stat: user nice system idle iowait irq softirq steal, in ticks. */
static void read_machine(struct meter *meter)
{
    double ticks[8];
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL)
        return;
    const int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1],
                            &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
    fclose(file);
    if (read != 8)
        return;
    const double a_second = (double)sysconf(_SC_CLK_TCK);
    meter->busy = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / a_second;
    meter->steal = ticks[7] / a_second;
}

struct meter read_meter(const struct counts *hogs)
{
    struct meter meter = {.busy = -1.0, .steal = -1.0, .hogs = 0.0};
    read_machine(&meter);
    meter.own = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t i = 0; i < hogs->length; i++) {
        clockid_t clock;
        if (clock_getcpuclockid((pid_t)hogs->values[i], &clock) == 0)
            meter.hogs += seconds_of(clock);
    }
    meter.cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return meter;
}

static void print_member(const char *name, double number)
{
    printf(",\"%s\":", name);
    print_json_number(number);
}

void print_meters(const struct meter *before, const struct meter *after)
{
    const double own = after->own - before->own;
    const double hogs = after->hogs - before->hogs;
    const int known = before->busy >= 0.0 && after->busy >= 0.0;
    print_member("own_seconds", own);
    print_member("hog_seconds", hogs);
    print_member("foreign_seconds", known ? after->busy - before->busy - own - hogs : NAN);
    print_member("steal_seconds", known ? after->steal - before->steal : NAN);
}
