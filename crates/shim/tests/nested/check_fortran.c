/* The checks, for programs in Fortran: check_fortran.f90 has the interfaces. */
#include "check.h"

void check_thread(const char *what) { check(what); }
void check_outside(const char *what) { check_original(what); }
void check_truth(int right, const char *what) {
  if (check_count(right)) fprintf(stderr, "not so: %s\n", what);
}
void check_expect(const char *shape, const char *masks) { expect(shape, masks); }
void check_meet(int *arrived, int n) { meet(arrived, n); }
int check_all(void) { return check_end(); }
