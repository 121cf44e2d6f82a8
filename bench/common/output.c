/*
 * Output common to all reports.  See output.h.
 */
#include "common/output.h"

#include "common/report.h"

#include <math.h>
#include <stdio.h>

void print_json_number(double number)
{
    if (isfinite(number)) /* JSON has no infinities or NaN */
        printf("%.17g", number);
    else
        printf("null");
}

int finish_output(bool verified)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("cannot write the report");
        return BENCH_EXIT_CANNOT_RUN;
    }
    return verified ? BENCH_EXIT_VERIFIED : BENCH_EXIT_WRONG_RESULT;
}
