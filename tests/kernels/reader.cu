// Reads a ring and reverses each warp's values by shared memory of its own: what the writer did to
// them is undone, as its facts say.
#include <pipelink/component.cuh>

#include "route.cuh"

namespace reader {
namespace pl = pipelink;
using namespace pl::literals;

#ifdef READS_ASYNC
constexpr auto proxy = pl::async_proxy;
#else
constexpr auto proxy = pl::generic_proxy;
#endif

constexpr auto tile_size = pl::imports<"tile_size">();
constexpr auto stages = pl::imports<"stages">();
constexpr auto scale = pl::imports<"scale", pl::any_text>();
constexpr auto negative = pl::imports<"negative", pl::any_bool>();
constexpr auto kind = pl::imports<"kind", pl::element<pl::bf16>, pl::element<float>>();
constexpr auto order = pl::imports<"order", pl::layout<"(4,32):(32,1)">>();
constexpr auto offset = pl::imports_or<"offset", 0>();
constexpr auto factor =
    pl::derives<"factor">(pl::select(scale == "half"_t, 2_n, 1_n) *
                          pl::select(negative && !(tile_size == 0_n), 0_n - 1_n, 1_n));
constexpr auto most_routes = pl::agrees<"most_routes", MOST_ROUTES>();
constexpr auto route =
    pl::shared_type<Route, "Route">()(PIPELINK_FIELD(Route, expert), PIPELINK_FIELD(Route, weight));
constexpr auto n = pl::extent<"n">();
constexpr auto values = pl::part<"values", float>(pl::shape(tile_size), pl::no_swizzle).edge_zero();
constexpr auto in = pl::ring_in<"in">()(stages, pl::each_thread, proxy, values);
constexpr auto finite = pl::needs<"finite">(in, "a sum with an infinity is lost");
constexpr auto y = pl::array_out<"y", float>(pl::shape(n)).covers(pl::by_row(tile_size).clipped());
constexpr auto lanes = pl::provides<"lanes", 32>();
constexpr auto own = pl::claims_array<"own", float, 64>(lanes).per_warp().during<"run">();
constexpr auto a_warp = pl::requires_that(lanes == 32_n, "a warp mirrors its own values");
constexpr auto meet = pl::claims_barrier<"meet">().per_warpgroup();
constexpr auto turns = pl::claims_barriers<"turns">(2_n);
constexpr auto done = pl::claims_mbarriers<"done">(1_n, pl::each_warp);
constexpr auto run = pl::entry<"run">()(pl::tile, in, y, n).plays(pl::drain(in));
constexpr auto warps = pl::claims_warps(pl::min(pl::ceil_div(tile_size, 32_n), 4_n));
constexpr auto one_each =
    pl::requires_that(pl::role_threads == tile_size, "a thread takes one value of a tile");

constexpr auto contract = pl::contract<"reader", "other-team", "1.0.0">(
    tile_size, stages, lanes, scale, negative, kind, order, offset, factor, most_routes, route, n,
    in, finite, y, own, meet, turns, done, run, warps, one_each, a_warp);

PIPELINK_COMPONENT(reader, contract)

PIPELINK_ENTRY(reader, run)
(pl::Self self, const pl::Tile& tile, pl::RingState& state, float* target, int size) {
    const unsigned thread = pl::role_thread(self);
    float value;
    in.wait(self, state);
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(value)
                 : "r"(in.address(self, values, state) + 4 * thread)
                 : "memory");
    in.release(self, state.stage);
    in.advance(self, state);
    float* const mine = own.warp_pointer(self);
    const unsigned lane = thread % lanes.at(self);
    mine[lane] = value;
    meet.sync_warpgroup(self);
    const float mirrored = mine[lanes.at(self) - 1 - lane];
    turns.sync(self, 1);
    const int at = tile.row * static_cast<int>(tile_size.at(self)) + static_cast<int>(thread);
    const auto undone = static_cast<float>(factor.at(self));
    if (at < size) target[at] = mirrored * undone + static_cast<float>(offset.at(self));
    done.arrive(self, 0);
    done.wait(self, 0, tile.row / gridDim.x & 1);
}

}  // namespace reader
