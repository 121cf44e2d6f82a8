// A pool of threads that take parts from a counter; as many as the library says the hardware runs.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

int main() {
    unsigned threads = std::thread::hardware_concurrency();
    std::atomic<unsigned> next{0};
    std::atomic<uint64_t> total{0};
    std::vector<std::thread> pool;
    for (unsigned t = 0; t < threads; t++)
        pool.emplace_back([&] {
            for (unsigned part; (part = next++) < 64;) {
                uint64_t sum = 0;
                for (uint64_t i = 0; i < 20000000; i++)
                    sum += (i * part) ^ (sum >> 3);
                total += sum;
            }
        });
    for (auto &thread : pool)
        thread.join();
    std::printf("threads %u total %llu\n", threads, (unsigned long long)total);
}
