// A producer of token rows: it keeps a ring of stages filled with the rows of a tile, a stage after
// a stage along k.
//
// `run` brings them in the order of the expert-sorted list: 16 bytes a copy, each thread for itself
// (cp.async), since no bulk copy takes a list of rows. `load` brings rows that already stand in
// that order, by bulk copies. Both lay a stage out alike, in panels of 64 columns with 128-byte
// swizzle.
//
// `sort`, a kernel of its own, puts rows in that order: where many tiles of columns read each of
// them again, that takes less time than gathering them in every tile.
#include <pipelink/component.cuh>

namespace gather {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto stages = pl::chooses<"stages", 4, 2, 3, 5, 6, 8>();
constexpr auto tile_k = pl::chooses<"tile_k", 64, 128, 256>();
constexpr auto gather_warps = pl::chooses<"gather_warps", 3, 1, 2, 4, 8>();
constexpr auto k = pl::imports<"k">();
constexpr auto tile_m = pl::imports_or<"tile_m", 128, 64, 192, 256>();
constexpr auto top_k = pl::imports<"top_k">();
constexpr auto sort_rows = pl::chooses<"sort_rows", 8, 4, 16>();  // of a tile: one a warp
constexpr auto panels = pl::derives<"panels">(tile_k / 64_n);
constexpr auto k_steps = pl::derives<"k_steps">(k / tile_k);
constexpr auto tokens = pl::extent<"tokens">();
constexpr auto routes = pl::extent<"routes">();

constexpr auto x = pl::array_in<"x", pl::bf16>(pl::shape(tokens, k));
constexpr auto order =
    pl::array_in<"order", int>(pl::shape(routes)).below(pl::shape(tokens, top_k)).distinct();
constexpr auto rows = pl::tensor_map_in<"rows", pl::bf16>(pl::shape(routes, k),
                                                          pl::box(tile_m, 64_n), pl::swizzle_128)
                          .covers(pl::by_group(tile_m), pl::whole(k_steps* tile_k));

constexpr auto x_tile =
    pl::part<"x", pl::bf16>(pl::shape(panels, tile_m, 64_n), pl::swizzle_128).edge_undefined();
constexpr auto loaded_tile =
    pl::part<"x", pl::bf16>(pl::shape(panels, tile_m, 64_n), pl::swizzle_128)
        .filled_by(rows, panels)
        .edge_undefined();
constexpr auto sorted = pl::array_out<"sorted", pl::bf16>(pl::shape(routes, k))
                            .covers(pl::by_row(sort_rows).clipped(), pl::whole(k));
constexpr auto out = pl::ring_out<"out">()(stages, pl::each_thread_async, x_tile);
constexpr auto loaded = pl::ring_out<"loaded">()(stages, pl::by_copies, loaded_tile);

constexpr auto run =
    pl::entry<"run">()(pl::tile, x, order, out).plays(pl::repeat(k_steps, pl::fill(out)));
constexpr auto load = pl::entry<"load">()(pl::tile, rows, loaded)
                          .plays(pl::repeat(k_steps, pl::fill(loaded)))
                          .by_one_thread();

constexpr auto sort = pl::entry<"sort">()(pl::tile, x, order, sorted, routes);
constexpr auto sort_schedule = pl::schedule<"sort_schedule">()(routes).tiles(
    pl::steps_over(routes, sort_rows), pl::steps_over(1_n, 1_n));

constexpr auto whole_steps =
    pl::requires_that(k % tile_k == 0_n, "the loop over k has no partial step");
constexpr auto warps = pl::claims_warps(gather_warps).during<"run">();
// A thread keeps an index for each row that it copies.
constexpr auto registers =
    pl::claims_registers(pl::select(tile_m > 64_n * gather_warps, 72_n, 56_n)).during<"run">();
constexpr auto load_warps = pl::claims_warps(3_n).during<"load">();
constexpr auto load_registers = pl::claims_registers(32_n).during<"load">();

constexpr auto sort_warps = pl::claims_warps(sort_rows).during<"sort">();
constexpr auto sort_registers = pl::claims_registers(40_n).during<"sort">();

constexpr auto contract = pl::contract<"gather", "routing", "1.0.0">(
    stages, tile_k, gather_warps, k, tile_m, top_k, panels, k_steps, tokens, routes, whole_steps,
    warps, registers, load_warps, load_registers, sort_rows, sort_warps, sort_registers, sorted,
    sort, sort_schedule, x, order, rows, out, loaded, run, load);

PIPELINK_COMPONENT(gather, contract)

constexpr int chunk = 16;       // bytes of a copy
constexpr int row_chunks = 8;   // of a row of a panel
constexpr int row_bytes = 128;  // of a panel

// A thread copies the same chunk of every `threads / row_chunks`-th row. Rows past the tile's end
// are undefined in a stage: they are copies of its last one.
template <int height, int threads>
__device__ __forceinline__ void gather_tile(pl::Self self, const pl::Tile& tile,
                                            const pl::bf16* tokens_, const int* list,
                                            pl::RingState& state) {
    constexpr int step_rows = threads / row_chunks;
    constexpr int count = (height + step_rows - 1) / step_rows;
    const int thread = pl::role_thread(self);
    const int column = thread % row_chunks, row = thread / row_chunks;
    const int stride = k.at(self) * static_cast<int>(sizeof(pl::bf16)) / chunk;
    int source[count];  // in chunks
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const int route = list[min(tile.first + row + i * step_rows, tile.end - 1)];
        source[i] = route / static_cast<int>(top_k.at(self)) * stride + column;
    }
    const auto* const base = reinterpret_cast<const char*>(tokens_);
    int at = 0;
    for (int step = 0; step < k_steps.at(self); ++step) {
        out.acquire(self, state);
        auto target = out.address(self, x_tile, state);
        for (int panel = 0; panel < panels.at(self); ++panel) {
#pragma unroll
            for (int i = 0; i < count; ++i) {
                const int r = row + i * step_rows;
                if (height % step_rows && r >= height) continue;
                pl::copy_async_16(target + r * row_bytes + (column ^ r % row_chunks) * chunk,
                                  base + static_cast<long long>(source[i] + at) * chunk);
            }
            target += height * row_bytes;
            at += row_chunks;
        }
        out.commit_async(self, state);
        out.advance(self, state);
    }
}

PIPELINK_ENTRY(gather, run)
(pl::Self self, const pl::Tile& tile, const pl::bf16* tokens_, const int* list,
 pl::RingState& state) {
    tile_m.dispatch(self, [&](auto height) {
        gather_warps.dispatch(self, [&](auto warps_) {
            gather_tile<height, warps_ * 32>(self, tile, tokens_, list, state);
        });
    });
}

PIPELINK_ENTRY(gather, load)
(pl::Self self, const pl::Tile& tile, const pl::TensorMap* map, pl::RingState& state) {
    int at = 0;
    for (int step = 0; step < k_steps.at(self); ++step) {
        loaded.acquire(self, state);
        const auto barrier = loaded.expect(self, state);
        const auto target = loaded.address(self, loaded_tile, state);
        for (int panel = 0; panel < panels.at(self); ++panel) {
            pl::bulk_load_2d(target + panel * rows.bytes(self), map, at, tile.first, barrier);
            at += 64;
        }
        loaded.advance(self, state);
    }
}

PIPELINK_ENTRY(gather, sort)
(pl::Self self, const pl::Tile& tile, const pl::bf16* tokens_, const int* list, pl::bf16* target,
 int count) {
    const int thread = pl::role_thread(self);
    const int row = tile.row * static_cast<int>(sort_rows.at(self)) + thread / 32;
    if (row >= count) return;
    const int chunks = k.at(self) * static_cast<int>(sizeof(pl::bf16)) / chunk;
    const long long token = list[row] / static_cast<int>(top_k.at(self));
    const auto* const from = reinterpret_cast<const uint4*>(tokens_) + token * chunks;
    auto* const to = reinterpret_cast<uint4*>(target) + static_cast<long long>(row) * chunks;
#pragma unroll 8
    for (int i = thread % 32; i < chunks; i += 32) to[i] = from[i];
}

PIPELINK_ENTRY(gather, sort_schedule)(pl::Self self, int index, pl::Tile& tile, int count) {
    tile.row = blockIdx.x + index * gridDim.x;
    tile.column = 0;
    return tile.row * static_cast<int>(sort_rows.at(self)) < count;
}

}  // namespace gather
