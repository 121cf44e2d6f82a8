/* omp_set_nesting_info, between regions, inside them, and with texts that cannot be read. argv[1]: the value that a call with a
   valid text should return (0; 2 without a map; -1 without trimtab). argv[2]: "late" if there is no map at the start. */
#include "check.h"
#include <trimtab/nesting.h>

extern int from_another_file(const char *text); /* info_other.c */

static int good;

static void teams(const char *what) {
  for (int again = 0; again < 3; again++) {
#pragma omp parallel num_threads(2)
    {
      check(what);
#pragma omp parallel num_threads(2)
      check(what);
      check(what);
    }
    check_original(what);
  }
}

/* Regions under this text, with the expected masks if a map is possible. */
static void under(const char *text, const char *shape, const char *masks) {
  check_true(omp_set_nesting_info(text) == good);
  if (good == 0) expect(shape, masks);
  teams(text);
}

int main(int count, char **words) {
  static const char *const bad[] = {
      "2,",      "x,scatter", "2,nearby", "0,scatter", "-1,compact",  "2,scatter,,2", "2;scatter", ",",
      "scatter", "2,scatter,2,scatter,2,scatter,2,scatter,2,scatter,2,scatter,2,scatter,2,scatter,2,scatter",
      "99999999999999999999,scatter", "2,\xff\xfe", "2,scatter,2,scatter\n0",
  };
  good = count > 1 ? atoi(words[1]) : -1;
  omp_set_max_active_levels(3);
  if (count > 2) {
    const char *masks = getenv("EXPECT");
    expect(NULL, "all");
    teams("not yet set");
    expect(getenv("SHAPE"), masks);
    check_true(omp_set_nesting_info("2,scatter,2,scatter") == good);
  }
  teams("at the start");
  under("2,scatter,2,subcompact", "2,2", "B,A/B,B,A,A");
  under(" 2, Scatter ,2 ,SCATTER", "2,2", "B,A/B,A,A,B");
  under("2,scatter,2", "2,2", "B,A/B,B,A,A");
  under("2,scatter", "2", "B,A");
  under("2,subscatter,2,subscatter", "2,2", "B,A/B,B,A,A");

  check_true(from_another_file("2,scatter,2,scatter") == good);
  if (good == 0) expect("2,2", "B,A/B,A,A,B");
  teams("from another file");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int result = omp_set_nesting_info(bad[i]);
    check_true(result == (good == 0 ? TRIMTAB_NESTING_BAD_TEXT : good) || (good == 2 && result == 1));
    if (i % 4 == 0) teams("after a bad text");
  }
  check_true(omp_set_nesting_info(NULL) != 0);
  char *endless = (char *)malloc(1 << 20);
  memset(endless, '2', (1 << 20) - 1);
  endless[(1 << 20) - 1] = 0;
  check_true(omp_set_nesting_info(endless) != 0);
  free(endless);
  teams("after bad texts");

  /* Inside a region: running threads stay, and later teams follow the new text. */
  for (int again = 0; again < 20; again++) {
#pragma omp parallel num_threads(2)
    {
      check("before a call inside");
#pragma omp barrier
#pragma omp single
      {
        check_true(omp_set_nesting_info(again % 2 ? "2,scatter,2,scatter" : "2,scatter,2,subcompact") == good);
        if (good == 0) expect("2,2", again % 2 ? "B,A/B,A,A,B" : "B,A/B,B,A,A");
      }
      check("after a call inside");
#pragma omp parallel num_threads(2)
      check("region after a call inside");
      check("after that region");
#pragma omp barrier
#pragma omp single
      check_true(omp_set_nesting_info("2,") != 0);
#pragma omp parallel num_threads(2)
      check("region after a bad call inside");
    }
    check_original("after a call inside");
    teams("after a call inside");
  }

  /* While other threads open regions: one map or the other, never none. */
  int done = 0;
#pragma omp parallel num_threads(2)
  {
    if (omp_get_thread_num() == 0) {
      for (int i = 0; i < 300; i++) {
        check_true(omp_set_nesting_info(i % 2 ? "2,scatter,2,scatter" : "2,scatter,2,subcompact") == good);
        sched_yield();
      }
      __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    } else {
      while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
#pragma omp parallel num_threads(2)
        {
          struct mask here = mask_here();
          check_true(check_state.everywhere || mask_count(&here) == 1);
        }
        check("between regions while the map changes");
      }
    }
  }
  check_original("at the end");
  return check_end();
}
