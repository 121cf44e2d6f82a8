// A reduction by oneTBB's threads, and how many there may be.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_reduce.h>

int main() {
    uint64_t total = 0;
    for (int round = 0; round < 40; round++)
        total += tbb::parallel_reduce(
            tbb::blocked_range<uint64_t>(0, 20000000), uint64_t(0),
            [=](const tbb::blocked_range<uint64_t> &range, uint64_t sum) {
                for (uint64_t i = range.begin(); i != range.end(); i++)
                    sum += (i ^ (i >> 7)) % (1013 + round);
                return sum;
            },
            std::plus<uint64_t>());
    std::printf("concurrency %d total %llu\n", tbb::info::default_concurrency(), (unsigned long long)total);
}
