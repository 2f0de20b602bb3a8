// Writes tiles as they lie in shared memory, by bulk copies; counts them in a phase of its own.
#include <pipelink/component.cuh>

namespace tile_store {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto rows = pl::imports<"rows">();
constexpr auto columns = pl::imports<"columns">();
constexpr auto m = pl::extent<"m">();
constexpr auto y = pl::array_out<"y", pl::bf16>(pl::shape(m, columns))
                       .covers(pl::by_row(rows).clipped(), pl::whole(columns));
constexpr auto tile = pl::part<"tile", pl::bf16>(pl::shape(rows, columns), pl::no_swizzle);
constexpr auto in = pl::tile_in<"in">()(pl::async_proxy, tile);
constexpr auto warps = pl::claims_warps(4_n);
constexpr auto run = pl::entry<"run">()(pl::tile, in, y, m);

constexpr auto contract =
    pl::contract<"tile_store", "data-movement", "1.0">(rows, columns, m, y, in, warps, run);
PIPELINK_COMPONENT(tile_store, contract)

PIPELINK_ENTRY(tile_store, run)
(pl::Self self, const pl::Tile& at, const pl::RingState& state, pl::bf16* target, int end) {
    if (pl::role_thread(self) != 0) return;
    const int row = at.row * static_cast<int>(rows.at(self)), width = columns.at(self);
    const int bytes = min(static_cast<int>(rows.at(self)), end - row) * width * 2;
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
        "cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group.read 0;" ::"l"(target + static_cast<long long>(row) * width),
        "r"(in.address(self, tile, state)), "r"(bytes)
        : "memory");
}

}  // namespace tile_store
