// Fills a ring by ordinary stores: every warp arrives for itself, and the link decides whether its
// stores need a fence. It also owns the schedule.
#include <pipelink/component.cuh>

#include "route.cuh"

namespace writer {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto tile_size = pl::provides<"tile_size", 128>();
constexpr auto stages = pl::chooses<"stages", 2, 3>();
constexpr auto scale = pl::chooses<"scale", "half"_t, "whole"_t>();
constexpr auto negative = pl::chooses<"negative", false, true>();
constexpr auto kind = pl::provides<"kind", pl::element<float>>();
constexpr auto order = pl::provides<"order", pl::layout<"(4,32):(32,1)">>();
constexpr auto most_routes = pl::agrees<"most_routes", MOST_ROUTES>();
constexpr auto route =
    pl::shared_type<Route, "Route">()(PIPELINK_FIELD(Route, expert), PIPELINK_FIELD(Route, weight));
constexpr auto n = pl::extent<"n">();
constexpr auto x = pl::array_in<"x", float>(pl::shape(n)).covers(pl::by_row(tile_size).clipped());
constexpr auto values = pl::part<"values", float>(pl::shape(tile_size), pl::no_swizzle).edge_zero();
constexpr auto out = pl::ring_out<"out">()(stages, pl::each_warp, values);
constexpr auto finite = pl::promises<"finite">(out, "what is not finite is replaced by zero");
constexpr auto run = pl::entry<"run">()(pl::tile, x, out, n).plays(pl::fill(out));
constexpr auto schedule =
    pl::schedule<"schedule">()(n).tiles(pl::steps_over(n, tile_size), pl::steps_over(1_n, 1_n));
constexpr auto warps = pl::claims_warps(tile_size / 32_n);
constexpr auto one_each =
    pl::requires_that(pl::role_threads == tile_size, "a thread stores one value of a tile");

constexpr auto contract = pl::contract<"writer", "test-team", "1.0.0">(
    tile_size, stages, scale, negative, kind, order, most_routes, route, n, x, out, finite, run,
    schedule, warps, one_each);

PIPELINK_COMPONENT(writer, contract)

PIPELINK_ENTRY(writer, run)
(pl::Self self, const pl::Tile& tile, const float* source, pl::RingState& state, int size) {
    const unsigned thread = pl::role_thread(self);
    const int at = tile.row * static_cast<int>(tile_size.at(self)) + static_cast<int>(thread);
    float value = at < size ? source[at] : 0.0f;
    if (!isfinite(value)) value = 0.0f;
    scale.dispatch(self, [&](auto factor) {
        if constexpr (std::is_same_v<decltype(factor), decltype("half"_t)>) value *= 0.5f;
    });
    negative.dispatch(self, [&](auto negated) {
        if constexpr (negated) value = -value;
    });
    out.acquire(self, state);
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(out.address(self, values, state) + 4 * thread),
                 "f"(value)
                 : "memory");
    out.commit(self, state);
    out.advance(self, state);
}

PIPELINK_ENTRY(writer, schedule)(pl::Self self, int index, pl::Tile& tile, int size) {
    tile.row = blockIdx.x + index * gridDim.x;
    tile.column = 0;
    return tile.row * static_cast<int>(tile_size.at(self)) < size;
}

}  // namespace writer
