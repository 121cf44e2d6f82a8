/*
 * UPC++ as C functions.  See upcxx_ranks.h.
 */
#include "team/kernels/upcxx_ranks.h"

#include <cstring>
#include <upcxx/upcxx.hpp>
#include <vector>

using bytes_of_rank = upcxx::global_ptr<unsigned char>;

/* Of each area, where it is in each rank. */
static std::vector<std::vector<bytes_of_rank>> areas;
static upcxx::promise<> *reads;

void upcxx_begin(int *me, int *ranks)
{
    upcxx::init();
    *me = upcxx::rank_me();
    *ranks = upcxx::rank_n();
}

void upcxx_end(void)
{
    areas.clear();
    upcxx::finalize();
}

void upcxx_meet(void)
{
    upcxx::barrier();
}

void upcxx_sum_i32(const int32_t *in, int32_t *out, size_t count)
{
    upcxx::reduce_all(in, out, count, upcxx::op_fast_add).wait();
}

void upcxx_sum_f64(const double *in, double *out, size_t count)
{
    upcxx::reduce_all(in, out, count, upcxx::op_fast_add).wait();
}

unsigned char *upcxx_area(size_t bytes)
{
    unsigned char *const own = static_cast<unsigned char *>(upcxx::allocate(bytes, 64));
    const bytes_of_rank mine = upcxx::to_global_ptr(own);
    /* All ranks take part, also those that got nothing: the answer of each is the same for all. */
    upcxx::dist_object<bytes_of_rank> told(mine);
    std::vector<bytes_of_rank> all;
    bool whole = true;
    for (int rank = 0; rank < upcxx::rank_n(); rank++) {
        all.push_back(told.fetch(rank).wait());
        whole = whole && !all.back().is_null();
    }
    /* An answer stays until all have it. */
    upcxx::barrier();
    if (!whole)
        return nullptr;
    areas.push_back(all);
    std::memset(own, 0, bytes);
    return own;
}

void upcxx_read(int rank, int area, size_t at, void *to, size_t bytes)
{
    if (bytes == 0)
        return;
    if (reads == nullptr)
        reads = new upcxx::promise<>();
    upcxx::rget(areas[area][rank] + at, static_cast<unsigned char *>(to), bytes,
                upcxx::operation_cx::as_promise(*reads));
}

void upcxx_read_all(void)
{
    if (reads == nullptr)
        return;
    reads->finalize().wait();
    delete reads;
    reads = nullptr;
}
