/*
 * The expected checksums of NAS kernel FT.
 */
#ifndef BENCH_NAS_FT_REFERENCE_H
#define BENCH_NAS_FT_REFERENCE_H

#include "common/problem_class.h"
#include "nas/ft_transform.h"

#define FT_MAX_ITERATIONS 20

/* By class and iteration; as many as the class has iterations. */
extern const struct ft_complex ft_reference[CLASS_COUNT][FT_MAX_ITERATIONS];

#endif
