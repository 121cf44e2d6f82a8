// Additional constructs of C++: exceptions and destructors in regions, iterators, lambdas, members, thread-local objects.
#include "check.h"
#include <numeric>
#include <stdexcept>
#include <trimtab/nesting.h>
#include <vector>

namespace {

long alive;

struct Guard {
  Guard() { add(&alive, 1); }
  ~Guard() { add(&alive, -1); }
};

struct Field {
  std::vector<int> cells = std::vector<int>(100);

  void fill(int value) {
#pragma omp parallel for num_threads(2) schedule(dynamic, 10)
    for (auto cell = cells.begin(); cell < cells.end(); ++cell) {
      Guard guard;
      check("iterator");
      *cell = value;
    }
  }
  long sum() const { return std::accumulate(cells.begin(), cells.end(), 0L); }
};

void throws_inside() {
  long caught = 0;
#pragma omp parallel num_threads(2)
  {
    try {
      Guard guard;
      check("before a throw");
      throw std::runtime_error("inside");
    } catch (const std::exception &) {
      add(&caught, 1);
    }
    check("after a throw");
  }
  check_true(caught == 2);
}

template <typename Work> void twice(Work work) {
#pragma omp parallel num_threads(2)
  {
    Guard guard;
    work();
  }
}

void leaves_by_exception() {
  bool caught = false;
  try {
    Field field;
    field.fill(1);
    throw std::logic_error("between regions");
  } catch (const std::logic_error &) {
    caught = true;
  }
  check_true(caught);
}

} // namespace

int main() {
  omp_set_max_active_levels(3);
  for (int again = 0; again < 10; again++) {
    Field field;
    field.fill(3);
    check_true(field.sum() == 300);
    throws_inside();
    twice([&] {
      check("outer lambda");
      Field mine;
      mine.fill(2);
      check_true(mine.sum() == 200);
      throws_inside();
      leaves_by_exception();
      twice([] { check("inner lambda"); });
      check("outer lambda, after");
    });
    check_original("outside");
  }
  check_true(alive == 0);
  check_true(omp_set_nesting_info("2,nearby") != 0);
  return check_end();
}
