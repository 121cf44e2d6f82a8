/* A second file of the program that includes the header. C and C++ alike. */
#include <trimtab/nesting.h>

#ifdef __cplusplus
extern "C"
#endif
int from_another_file(const char *text);

int from_another_file(const char *text) { return omp_set_nesting_info(text); }
