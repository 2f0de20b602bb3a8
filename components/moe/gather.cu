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
constexpr auto load_pieces = pl::chooses<"load_pieces", 2, 1, 4, 8>();  // of a tile's rows
constexpr auto sort_rows = pl::chooses<"sort_rows", 8, 4, 16>();        // of a tile: one a warp
constexpr auto panels = pl::derives<"panels">(tile_k / 64_n);
constexpr auto k_steps = pl::derives<"k_steps">(k / tile_k);
constexpr auto tokens = pl::extent<"tokens">();
constexpr auto routes = pl::extent<"routes">();

constexpr auto x = pl::array_in<"x", pl::bf16>(pl::shape(tokens, k));
constexpr auto order = pl::array_in<"order", int>(pl::shape(routes))
                           .count(pl::shape(tokens, top_k))
                           .below(pl::shape(tokens, top_k))
                           .distinct();
constexpr auto rows =
    pl::tensor_map_in<"rows", pl::bf16>(pl::shape(routes, k), pl::box(tile_m / load_pieces, 64_n),
                                        pl::swizzle_128)
        .covers(pl::by_group(tile_m), pl::whole(k_steps* tile_k));

constexpr auto x_tile =
    pl::part<"x", pl::bf16>(pl::shape(panels, tile_m, 64_n), pl::swizzle_128).edge_undefined();
constexpr auto loaded_tile =
    pl::part<"x", pl::bf16>(pl::shape(panels, tile_m, 64_n), pl::swizzle_128)
        .filled_by(rows, panels* load_pieces)
        .edge_undefined();
constexpr auto sorted = pl::array_out<"sorted", pl::bf16>(pl::shape(routes, k))
                            .covers(pl::by_row(sort_rows).clipped(), pl::whole(k));
constexpr auto out = pl::ring_out<"out">()(stages, pl::each_thread_async, x_tile);
constexpr auto loaded = pl::ring_out<"loaded">()(stages, pl::by_copies, loaded_tile);

constexpr auto run = pl::entry<"run">()(pl::tile, x, order, out)
                         .plays(pl::repeat(k_steps, pl::fill(out)))
                         .by_groups();
constexpr auto load = pl::entry<"load">()(pl::tile, rows, loaded)
                          .plays(pl::repeat(k_steps, pl::fill(loaded)))
                          .by_one_thread();

constexpr auto sort = pl::entry<"sort">()(pl::tile, x, order, sorted, routes);
constexpr auto sort_schedule = pl::schedule<"sort_schedule">()(routes).tiles(
    pl::steps_over(routes, sort_rows), pl::steps_over(1_n, 1_n));

constexpr auto whole_steps =
    pl::requires_that(k % tile_k == 0_n, "the loop over k has no partial step");
constexpr auto warps = pl::claims_warps(gather_warps).during<"run">();
constexpr auto whole_pieces =
    pl::requires_that(tile_m % (load_pieces * 8_n) == 0_n,
                      "a piece has whole groups of 8 rows, which a swizzle permutes");
// A thread keeps an index for each row that it copies.
constexpr auto registers =
    pl::claims_registers(pl::select(tile_m > 64_n * gather_warps, 72_n, 56_n)).during<"run">();
constexpr auto load_warps = pl::claims_warps(3_n).during<"load">();
constexpr auto load_registers = pl::claims_registers(32_n).during<"load">();

constexpr auto sort_warps = pl::claims_warps(sort_rows).during<"sort">();
constexpr auto sort_registers = pl::claims_registers(40_n).during<"sort">();

constexpr auto contract = pl::contract<"gather", "routing", "1.0.0">(
    stages, tile_k, gather_warps, k, tile_m, top_k, panels, k_steps, tokens, routes, load_pieces,
    whole_steps, whole_pieces, warps, registers, load_warps, load_registers, sort_rows, sort_warps,
    sort_registers, sorted, sort, sort_schedule, x, order, rows, out, loaded, run, load);

PIPELINK_COMPONENT(gather, contract)

constexpr int chunk = 16;       // bytes of a copy
constexpr int row_chunks = 8;   // of a row of a panel
constexpr int row_bytes = 128;  // of a panel

// A thread copies the same chunk of every `threads / row_chunks`-th row; of `count` such rows in a
// tile it has the first `live`, the others are past the tile's end and stay undefined.
template <int height, int threads>
struct Share {
    static constexpr int step_rows = threads / row_chunks;
    static constexpr int count = (height + step_rows - 1) / step_rows;
    unsigned source[count];  // of a row's chunk in the first panel, in chunks: of 64 GiB at most
    unsigned target[2];      // in a panel: a step of 4 rows exchanges the halves of the swizzle
    int live;

    __device__ __forceinline__ void copy(const char* from, unsigned to, int i) const {
        pl::copy_async_16(to + target[step_rows % 8 ? i % 2 : 0] + i * step_rows * row_bytes,
                          from + static_cast<unsigned long long>(source[i]) * chunk);
    }
    __device__ __forceinline__ void copy_panel(const char* from, unsigned to) const {
        // In a whole tile only the last row may be missing: its rows need be no multiple of a step.
        if (live >= count - 1) {
#pragma unroll
            for (int i = 0; i < count - 1; ++i) copy(from, to, i);
            if (live == count) copy(from, to, count - 1);
        } else {
#pragma unroll
            for (int i = 0; i < count; ++i) {
                if (i < live) copy(from, to, i);
            }
        }
    }
};

template <int height, int threads>
__device__ __forceinline__ void gather_tile(pl::Self self, const pl::Tile& tile,
                                            const pl::bf16* tokens_, const int* list,
                                            pl::RingState& state) {
    Share<height, threads> share;
    const int thread = pl::role_thread(self);
    const int column = thread % row_chunks, row = thread / row_chunks;
    const unsigned stride = k.at(self) * sizeof(pl::bf16) / chunk;
    share.live = (min(tile.end - tile.first, height) - row + share.step_rows - 1) / share.step_rows;
    share.target[0] = row * row_bytes + (column ^ row % 8) * chunk;
    share.target[1] = row * row_bytes + (column ^ (row + 4) % 8) * chunk;
#pragma unroll
    for (int i = 0; i < share.count; ++i) {
        if (i < share.live) {
            const int route = list[tile.first + row + i * share.step_rows];
            share.source[i] = route / static_cast<int>(top_k.at(self)) * stride + column;
        }
    }
    const auto* from = reinterpret_cast<const char*>(tokens_);
    for (int step = 0; step < k_steps.at(self); ++step) {
        out.acquire(self, state);
        auto to = out.address(self, x_tile, state);
        for (int panel = 0; panel < panels.at(self); ++panel) {
            share.copy_panel(from, to);
            from += row_bytes;
            to += height * row_bytes;
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
    const int piece_rows = tile_m.at(self) / load_pieces.at(self);
    const int pieces = (tile.end - tile.first + piece_rows - 1) / piece_rows;
    const auto panel_bytes = load_pieces.at(self) * rows.bytes(self);
    int at = 0;
    for (int step = 0; step < k_steps.at(self); ++step) {
        loaded.acquire(self, state);
        const auto barrier =
            loaded.expect(self, state, panels.at(self) * pieces * rows.bytes(self));
        auto target = loaded.address(self, loaded_tile, state);
        for (int panel = 0; panel < panels.at(self); ++panel) {
            for (int piece = 0; piece < pieces; ++piece) {
                pl::bulk_load_2d(target + piece * rows.bytes(self), map, at,
                                 tile.first + piece * piece_rows, barrier);
            }
            target += panel_bytes;
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
