// A reduction by Kokkos, and how many threads there are.
#include <Kokkos_Core.hpp>
#include <cstdio>

int main(int count, char **words) {
    Kokkos::initialize(count, words);
    long long total = 0;
    for (int round = 0; round < 40; round++) {
        long long sum = 0;
        Kokkos::parallel_reduce(
            "sum", 10000000, KOKKOS_LAMBDA(const long i, long long &part) { part += (i ^ (i >> 7)) % (1013 + round); }, sum);
        total += sum;
    }
    std::printf("threads %d total %lld\n", Kokkos::DefaultHostExecutionSpace().concurrency(), total);
    Kokkos::finalize();
}
