/*
 * Output common to all reports, in words or as JSON.
 */
#ifndef BENCH_COMMON_OUTPUT_H
#define BENCH_COMMON_OUTPUT_H

#include <stdbool.h>

/* Prints a number so that it reads back the same; null if it is not finite. */
void print_json_number(double number);

/*
 * Checks that all output was written, and returns the program's exit status
 * (common/report.h): a report that was lost is not a success.
 */
int finish_output(bool verified);

#endif
