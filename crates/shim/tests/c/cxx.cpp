// C++ threads that throw and catch, with destructors on the way out, and thread-local objects.
#include "seen.h"
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int alive;
struct Counted {
  Counted() { __atomic_fetch_add(&alive, 1, __ATOMIC_SEQ_CST); }
  ~Counted() { __atomic_fetch_sub(&alive, 1, __ATOMIC_SEQ_CST); }
};
static thread_local Counted mine;

static int fails(int depth) {
  Counted here;
  if (depth == 0) throw std::runtime_error("as planned");
  return fails(depth - 1) + 1;
}

int main() {
  std::string first, second;
  std::thread one([&] {
    (void)&mine;
    first = here();
    try {
      fails(5);
      CHECK(false);
    } catch (const std::runtime_error &error) {
      CHECK(std::string(error.what()) == "as planned");
    }
    std::thread([&] { second = here(); }).join();
  });
  one.join();
  auto future = std::async(std::launch::async, fails, 3);
  try {
    future.get();
    CHECK(false);
  } catch (const std::runtime_error &) {
  }
  std::vector<std::thread> many;
  for (int i = 0; i < 50; i++) many.emplace_back([] { try { fails(2); } catch (...) { } });
  for (auto &thread : many) thread.join();
  CHECK(alive == 0);
  printf("%s %s cpus %u\n", first.c_str(), second.c_str(), std::thread::hardware_concurrency());
}
