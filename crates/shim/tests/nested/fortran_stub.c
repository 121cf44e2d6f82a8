/* Stub to link a program that calls omp_set_nesting_info without the module; the shim's function comes first. */
#include <stddef.h>

int omp_set_nesting_info_(const char *text, size_t length);
int omp_set_nesting_info_(const char *text, size_t length) { return text && length ? -5 : -6; }
