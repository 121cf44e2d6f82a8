/*
 * NAS problem classes.
 *
 * The NAS Parallel Benchmarks define a fixed series of problem sizes: S
 * (sample) and W (workstation) for testing, A, B and C for measurement, each
 * several times the work of the one before.  Kernels here choose the class at
 * run time, so each keeps its parameters in a table indexed by this
 * enumeration.
 */
#ifndef BENCH_COMMON_PROBLEM_CLASS_H
#define BENCH_COMMON_PROBLEM_CLASS_H

#include <stdbool.h>

enum problem_class { CLASS_S, CLASS_W, CLASS_A, CLASS_B, CLASS_C, CLASS_COUNT };

/* The letter of a class, for reports. */
char problem_class_letter(enum problem_class problem_class);

/* All class letters in order, separated by spaces, for messages. */
const char *problem_class_list(void);

/* Reads a single class letter of either case.  False if it names no class. */
bool problem_class_parse(const char *text, enum problem_class *problem_class);

#endif
