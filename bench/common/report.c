/*
 * Verification and reporting.  See report.h.
 */
#include "common/report.h"

#include "common/output.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

double relative_error(const struct bench_value *value)
{
    return fabs(value->computed - value->reference) / fabs(value->reference);
}

bool values_agree(const struct bench_value *values, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        if (!(relative_error(&values[i]) <= tolerance)) /* a NaN must fail too */
            return false;
    return true;
}

#define SIZE_TEXT_LENGTH 80 /* three 64-bit numbers and what joins them */

/* Writes the extents in use with the separator between them; returns text. */
static const char *size_text(const struct bench_report *report, const char *separator,
                             char text[SIZE_TEXT_LENGTH])
{
    int length = snprintf(text, SIZE_TEXT_LENGTH, "%lld", report->size[0]);
    for (int i = 1; i < 3 && report->size[i] != 0; i++)
        length += snprintf(text + length, (size_t)(SIZE_TEXT_LENGTH - length), "%s%lld", separator,
                           report->size[i]);
    return text;
}

void print_heading(const struct bench_report *report)
{
    char size[SIZE_TEXT_LENGTH];
    printf("\n NAS Parallel Benchmarks (C and OpenMP, after RNR-94-007) - %s Benchmark\n\n",
           report->kernel);
    printf(" Class: %c\n", problem_class_letter(report->problem_class));
    printf(" Size: %s\n", size_text(report, " x ", size));
    printf(" Iterations: %d\n", report->iterations);
    printf(" Number of threads: %d\n", report->threads);
    if (report->outer > 0)
        printf(" Teams: %d threads outside, %d inside each\n", report->outer, report->inner);
    printf("\n");
    fflush(stdout);
}

static void print_verification(const struct bench_report *report)
{
    printf(" %s\n", report->verified ? "VERIFICATION SUCCESSFUL" : "VERIFICATION FAILED");
    for (size_t i = 0; i < report->value_count; i++) {
        const struct bench_value *value = &report->values[i];
        printf(" %-6s = %22.15e   reference %22.15e   relative error %8.1e\n", value->name,
               value->computed, value->reference, relative_error(value));
    }
}

static void print_summary(const struct bench_report *report)
{
    char size[SIZE_TEXT_LENGTH];
    printf("\n %s Benchmark Completed.\n", report->kernel);
    printf(" Class           = %24c\n", problem_class_letter(report->problem_class));
    printf(" Size            = %24s\n", size_text(report, " x ", size));
    printf(" Iterations      = %24d\n", report->iterations);
    printf(" Setup seconds   = %24.4f\n", report->setup_seconds);
    printf(" Time in seconds = %24.4f\n", report->seconds);
    printf(" Total threads   = %24d\n", report->threads);
    printf(" Mop/s total     = %24.2f\n", report->mops);
    printf(" Mop/s/thread    = %24.2f\n", report->mops / report->threads);
    printf(" Operation type  = %24s\n", report->operation);
    printf(" Verification    = %24s\n", report->verified ? "SUCCESSFUL" : "UNSUCCESSFUL");
}

static void print_json(const struct bench_report *report)
{
    char size[SIZE_TEXT_LENGTH];
    printf("{\"kernel\":\"");
    for (const char *c = report->kernel; *c != '\0'; c++)
        putchar(tolower((unsigned char)*c));
    printf("\",\"class\":\"%c\"", problem_class_letter(report->problem_class));
    printf(",\"size\":[%s]", size_text(report, ",", size));
    printf(",\"iterations\":%d,\"threads\":%d", report->iterations, report->threads);
    if (report->outer > 0)
        printf(",\"outer\":%d,\"inner\":%d", report->outer, report->inner);
    printf(",\"setup_seconds\":%.6f,\"seconds\":%.6f", report->setup_seconds, report->seconds);
    printf(",\"mops\":");
    print_json_number(report->mops);
    printf(",\"verified\":%s,\"values\":{", report->verified ? "true" : "false");
    for (size_t i = 0; i < report->value_count; i++) {
        printf("%s\"%s\":", i == 0 ? "" : ",", report->values[i].name);
        print_json_number(report->values[i].computed);
    }
    printf("}}\n");
}

int finish_report(const struct bench_report *report, bool json)
{
    if (json) {
        print_json(report);
    } else {
        print_verification(report);
        print_summary(report);
    }
    return finish_output(report->verified);
}
