// Several threads of the program open regions by themselves. argv[1]: treatment of those after the first:
// "alone" (left as they are), "share" (the same map), "part" (a part of the machine, here one CPU). argv[2], argv[3]: number of
// threads, number of rounds.
#include "check.h"
#include <string>
#include <thread>
#include <vector>

static void regions(void (*look)(const char *), int rounds) {
  for (int again = 0; again < rounds; again++) {
#pragma omp parallel num_threads(2)
    {
      look("outer");
#pragma omp parallel num_threads(2)
      look("inner");
      look("outer, after");
    }
  }
}

static void check_alone(const char *what) {
  struct mask here = mask_here();
  check_mask(what, &here, &check_state.original);
}

static void check_one(const char *) {
  struct mask here = mask_here();
  check_true(mask_count(&here) == 1);
}

// All threads of all teams of this root have the same CPU.
static void regions_on_one_cpu() {
  struct mask all = mask_none();
#pragma omp parallel num_threads(2)
#pragma omp parallel num_threads(2)
  {
    struct mask here = mask_here();
#pragma omp critical
    for (int i = 0; i < (int)(CPUS / WORD); i++) all.word[i] |= here.word[i];
  }
  check_true(mask_count(&all) == 1);
}

int main(int count, char **words) {
  std::string others = count > 1 ? words[1] : "alone";
  void (*look)(const char *) = others == "share" ? check : others == "part" ? check_one : check_alone;
  int number = count > 2 ? std::stoi(words[2]) : 3, rounds = count > 3 ? std::stoi(words[3]) : 20;
  omp_set_max_active_levels(3);
  regions(others == "part" ? check_one : check, 2); // the first root
  for (int again = 0; again < 5; again++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < number; i++)
      threads.emplace_back([&] {
        omp_set_max_active_levels(3);
        check_original("a thread of the program");
        regions(look, rounds);
        check_original("a thread of the program, after regions");
        if (others == "part") regions_on_one_cpu();
      });
    regions(others == "part" ? check_one : check, rounds);
    for (std::thread &thread : threads) thread.join();
    check_original("the first root");
  }
  return check_end();
}
