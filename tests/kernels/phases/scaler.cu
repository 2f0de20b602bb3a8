// Scales each column by a weight. The weights are read once, squared through scratch memory, and
// stay in shared memory for all tiles of the next phase.
#include <pipelink/component.cuh>

namespace scaler {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto rows = pl::imports<"rows">();
constexpr auto columns = pl::imports<"columns", 64>();
constexpr auto weights =
    pl::array_in<"weights", float>(pl::shape(columns)).covers(pl::whole(columns));
constexpr auto table = pl::claims_array<"table", float>(columns);
constexpr auto scratch = pl::claims_array<"scratch", float, 128>(columns * 128_n).during<"fill">();
constexpr auto meet = pl::claims_barrier<"meet">();
// mma.m16n8k16's first operand: 16 rows a warp.
constexpr auto in =
    pl::fragment_in<"in", pl::bf16, "((4,8,4),(2,2,2,columns/16)):((128,1,16),(64,8,512,1024))">(
        pl::shape(rows, columns));
constexpr auto out =
    pl::fragment_out<"out", float, "((4,8,4),(2,2,2,columns/16)):((128,1,16),(64,8,512,1024))">(
        pl::shape(rows, columns));
constexpr auto warps = pl::claims_warps(4_n);
constexpr auto fill = pl::entry<"fill">()(weights);
constexpr auto apply = pl::entry<"apply">()(in, out);
constexpr auto whole = pl::requires_that(rows == 64_n, "four warps have 16 rows each");

constexpr auto contract = pl::contract<"scaler", "normalisation", "1.0">(
    rows, columns, weights, table, scratch, meet, in, out, warps, fill, apply, whole);
PIPELINK_COMPONENT(scaler, contract)

PIPELINK_ENTRY(scaler, fill)(pl::Self self, const float* given) {
    const unsigned thread = pl::role_thread(self), count = columns.at(self);
    float* const own = scratch.pointer(self);
    for (unsigned n = thread; n < count * 128; n += 128) own[n] = given[n % count];
    meet.sync(self);
    float* const kept = table.pointer(self);
    for (unsigned n = thread; n < count; n += 128) kept[n] = own[n] * own[n + 127 * count];
    meet.sync(self);
}

PIPELINK_ENTRY(scaler, apply)(pl::Self self, const pl::bf16* given, float* made) {
    const unsigned lane = pl::role_thread(self) % 32;
    const float* const kept = table.pointer(self);
    constexpr int values = 32;
#pragma unroll
    for (int v = 0; v < values; ++v) {
        const unsigned column = lane % 4 * 2 + v % 2 + v / 4 % 2 * 8 + v / 8 * 16;
        made[v] = __bfloat162float(given[v]) * kept[column];
    }
}

}  // namespace scaler
