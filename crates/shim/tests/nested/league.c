/* Teams constructs on the host. One team is like any other. Of several teams, the runtime decides which thread leads each and whether it gets
   a second thread: these are placed or left alone, but all their work is done. A program of its
   own: libomp 14 hangs in nested regions that follow these. */
#include "check.h"

static volatile int two_ = 2;

int main(void) {
  int two = two_;
  for (int again = 0; again < 50; again++) {
    long sum = 0;
    check_original("before");
#pragma omp teams distribute parallel for num_teams(1) num_threads(2)
    for (int i = 0; i < two; i++) check("one team"), add(&sum, i + 1);
    check_true(sum == 3);
#pragma omp teams num_teams(2)
    add(&sum, omp_get_team_num() + 1);
#pragma omp teams distribute parallel for num_teams(2) num_threads(2)
    for (int i = 0; i < two * 8; i++) {
      struct mask here = mask_here();
      check_true(mask_count(&here) == 1 || mask_same(&here, &check_state.original));
      add(&sum, i);
    }
    check_true(sum >= 3 + 1 + 120);
    check_original("after");
  }
  return check_end();
}
