// Sums of the weights' halves, in a phase after all tiles, on all warps of the block.
#include <pipelink/component.cuh>

namespace sums {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto columns = pl::imports<"columns">();
constexpr auto b = pl::extent<"b">();
constexpr auto weights =
    pl::array_in<"weights", float>(pl::shape(columns)).covers(pl::whole(columns));
constexpr auto total = pl::array_out<"total", float>(pl::shape(b));
constexpr auto parts = pl::claims_array<"parts", float, 128>(4096_n);
constexpr auto meet = pl::claims_barrier<"meet">();
constexpr auto warps = pl::claims_warps(5_n);
constexpr auto run = pl::entry<"run">()(weights, total, b);
constexpr auto one_each = pl::requires_that(columns <= pl::role_threads, "a thread has a weight");

constexpr auto contract = pl::contract<"sums", "statistics", "1.0">(
    columns, b, weights, total, parts, meet, warps, run, one_each);
PIPELINK_COMPONENT(sums, contract)

PIPELINK_ENTRY(sums, run)(pl::Self self, const float* given, float* target, int blocks) {
    const unsigned thread = pl::role_thread(self), count = columns.at(self);
    float* const own = parts.pointer(self);
    for (unsigned n = thread; n < 4096; n += 160) own[n] = n < count ? given[n] : 0.0f;
    meet.sync(self);
    if (thread != 0 || static_cast<int>(blockIdx.x) >= blocks) return;
    float sum = 0.0f;
    for (unsigned n = 0; n < 4096; n += 1) sum += own[n];
    target[blockIdx.x] = sum;
}

}  // namespace sums
