// A grouped matrix product: the rows of each expert's group times that expert's weights.
//
// `load` keeps a ring filled with tiles of weights by bulk copies; `run` multiplies the tiles of
// the two rings with wgmma and leaves the accumulator in registers; `schedule` walks the tiles of
// all groups, experts without a row among them. 64-row blocks of a tile that lie past the end of
// its group are not multiplied.
//
// Where an activation pairs two halves of the weights' rows (gate and up), `pairing` says in which
// columns of a tile they stand.
#include <pipelink/component.cuh>

#include "../ffn/wgmma.cuh"

namespace expert_gemm {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto warpgroups = pl::chooses<"warpgroups", 2, 1, 3>();
constexpr auto rows = pl::chooses<"rows", 64, 128>();  // of the tile, a warpgroup
constexpr auto tile_n = pl::chooses<"tile_n", 256, 64, 128>();
constexpr auto w_stages = pl::chooses<"w_stages", 4, 2, 3, 5, 6, 8>();
constexpr auto raster_rows = pl::chooses<"raster_rows", 16, 1, 4, 8, 32, 64>();
constexpr auto tile_m = pl::derives<"tile_m">(warpgroups * rows);
constexpr auto k = pl::imports<"k">();
constexpr auto n = pl::imports<"n">();
constexpr auto experts = pl::imports<"experts">();
constexpr auto tile_k = pl::imports<"tile_k", 64, 128, 256>();
constexpr auto stages = pl::imports<"stages">();
constexpr auto pairing =
    pl::imports_or<"pairing", "none"_t, "gate_first"_t, "up_first"_t, "interleaved"_t>();
constexpr auto panels = pl::derives<"w_panels">(tile_k / 64_n);
constexpr auto k_steps = pl::derives<"w_steps">(k / tile_k);
constexpr auto column_tiles = pl::derives<"column_tiles">(n / tile_n);
constexpr auto tile_columns = pl::derives<"tile_columns">(tile_n * 1_n);
constexpr auto columns = pl::derives<"columns">(n * 1_n);
constexpr auto box_rows =
    pl::derives<"box_rows">(pl::select(pairing == "interleaved"_t, 8_n, tile_n / 2_n));
constexpr auto routes = pl::extent<"routes">();

constexpr auto offsets =
    pl::array_in<"offsets", int>(pl::shape(experts + 1_n)).ascending(pl::shape(routes));
constexpr auto w = pl::tensor_map_in<"w", pl::bf16>(pl::shape(experts, n, k),
                                                    pl::box(1_n, box_rows, 64_n), pl::swizzle_128);

constexpr auto x_tile = pl::part<"x", pl::bf16>(pl::shape(panels, tile_m, 64_n), pl::swizzle_128);
constexpr auto w_tile = pl::part<"w", pl::bf16>(pl::shape(panels, tile_n, 64_n), pl::swizzle_128)
                            .filled_by(w, panels* tile_n / box_rows);
constexpr auto w_read = pl::part<"w", pl::bf16>(pl::shape(panels, tile_n, 64_n), pl::swizzle_128);
constexpr auto w_out = pl::ring_out<"w_out">()(w_stages, pl::by_copies, w_tile);
constexpr auto w_in = pl::ring_in<"w_in">()(w_stages, pl::each_warpgroup, pl::async_proxy, w_read);
constexpr auto in = pl::ring_in<"in">()(stages, pl::each_warpgroup, pl::async_proxy, x_tile);

// The accumulator of wgmma m64nN, 64 rows after 64 rows: (thread, value) -> (row, column).
constexpr auto acc =
    pl::fragment_out<"acc", float,
                     "((4,8,4),(2,2,tile_n/8,rows/64)):((2*rows,1,16),(rows,8,8*rows,64))">(
        pl::shape(tile_m, tile_n));

// 160 registers a thread: with more, ptxas spills.
constexpr int largest_accumulator = 128 * 160;  // rows * tile_n of a warpgroup

constexpr auto load = pl::entry<"load">()(pl::tile, w, w_out)
                          .plays(pl::repeat(k_steps, pl::fill(w_out)))
                          .by_groups()
                          .by_one_thread();
// One stage stays in flight: a stage is released when the next one's products have been issued.
constexpr auto run = pl::entry<"run">()(pl::tile, in, w_in, acc)
                         .plays(pl::wait(in), pl::wait(w_in),
                                pl::repeat(k_steps - 1_n, pl::wait(in), pl::wait(w_in),
                                           pl::release(in), pl::release(w_in)),
                                pl::release(in), pl::release(w_in))
                         .by_groups();
constexpr auto schedule =
    pl::schedule<"schedule">()(offsets, routes)
        .tiles(pl::steps_over(routes, tile_m).in_groups(), pl::steps_over(column_tiles, 1_n));

constexpr auto accumulator_fits =
    pl::requires_that(rows * tile_n <= pl::Literal<largest_accumulator>{},
                      "an accumulator of more than 160 registers a thread spills");
constexpr auto one_step =
    pl::requires_that(k_steps >= 1_n, "the first step overwrites the accumulator");
constexpr auto whole_steps =
    pl::requires_that(k % tile_k == 0_n, "the loop over k has no partial step");
constexpr auto whole_columns =
    pl::requires_that(n % tile_n == 0_n, "tiles of weights have no ragged edge");
// A warpgroup without a row multiplies nothing, so no wgmma keeps its warps together: one would
// free a stage for which another still has to wait.
constexpr auto together = pl::claims_barrier<"together">().per_warpgroup().during<"run">();
constexpr auto load_warps = pl::claims_warps(1_n).during<"load">();
constexpr auto load_registers = pl::claims_registers(32_n).during<"load">();
constexpr auto warps = pl::claims_warps(warpgroups * 4_n).during<"run">();
constexpr auto registers = pl::claims_registers(88_n + rows * tile_n / 128_n).during<"run">();

constexpr auto contract = pl::contract<"expert_gemm", "matrix", "1.0.0">(
    warpgroups, rows, tile_n, w_stages, raster_rows, tile_m, k, n, experts, tile_k, stages, pairing,
    panels, k_steps, column_tiles, tile_columns, columns, box_rows, routes, accumulator_fits,
    one_step, whole_steps, whole_columns, together, load_warps, load_registers, warps, registers,
    offsets, w, w_out, w_in, in, acc, load, run, schedule);

PIPELINK_COMPONENT(expert_gemm, contract)

// The row of an expert's weights that stands first in box `box` of a tile of columns.
__device__ __forceinline__ int weight_row(pl::Self self, int column, int box) {
    const int width = tile_n.at(self), half = n.at(self) / 2, height = box_rows.at(self);
    if (pairing.at(self) == pl::Text<"none">::bound) return column * width + box * height;
    const int first = column * (width / 2);
    if (pairing.at(self) == pl::Text<"interleaved">::bound) {
        return first + box / 2 * height + (box % 2 ? half : 0);
    }
    const bool up = (box == 1) == (pairing.at(self) == pl::Text<"gate_first">::bound);
    return first + (up ? half : 0);
}

PIPELINK_ENTRY(expert_gemm, load)
(pl::Self self, const pl::Tile& tile, const pl::TensorMap* map, pl::RingState& state) {
    const int boxes = tile_n.at(self) / box_rows.at(self);
    int at = 0;
    for (int step = 0; step < k_steps.at(self); ++step) {
        w_out.acquire(self, state);
        const auto barrier = w_out.expect(self, state);
        auto target = w_out.address(self, w_tile, state);
        for (int panel = 0; panel < panels.at(self); ++panel) {
            for (int box = 0; box < boxes; ++box) {
                pl::bulk_load_3d(target, map, at, weight_row(self, tile.column, box), tile.group,
                                 barrier);
                target += w.bytes(self);
            }
            at += 64;
        }
        w_out.advance(self, state);
    }
}

// One stage: `live` of a warpgroup's 64-row blocks.
template <int N, int live>
__device__ __forceinline__ void multiply_stage(pl::Self self, float* d, std::uint32_t x,
                                               std::uint32_t w_, bool first) {
    for (int panel = 0; panel < panels.at(self); ++panel) {
#pragma unroll
        for (int step = 0; step < 4; ++step) {  // of 16 columns
#pragma unroll
            for (int block = 0; block < live; ++block) {
                warpgroup_mma::multiply<N>(
                    d + block * (N / 2),
                    warpgroup_mma::descriptor(x + block * 64 * 128 + step * 32),
                    warpgroup_mma::descriptor(w_ + step * 32), !first || panel > 0 || step > 0);
            }
        }
        x += tile_m.at(self) * 128;
        w_ += tile_n.at(self) * 128;
    }
}

template <int N, int R, int live>
__device__ __forceinline__ void multiply_tile(pl::Self self, pl::RingState& x_state,
                                              pl::RingState& w_state, float* d) {
    const unsigned warpgroup = pl::role_thread(self) / 128;
    unsigned x_previous = 0, w_previous = 0;
    for (int step = 0; step < k_steps.at(self); ++step) {
        w_in.wait(self, w_state);
        in.wait(self, x_state);
        if constexpr (live > 0) {
            const auto x = in.address(self, x_tile, x_state) + warpgroup * R * 128;
            warpgroup_mma::pin<N * R / 128>(d);
            warpgroup_mma::fence();
            multiply_stage<N, live>(self, d, x, w_in.address(self, w_read, w_state), step == 0);
            warpgroup_mma::commit();
            warpgroup_mma::wait<1>();
        } else {
            together.sync_warpgroup(self);
        }
        if (step > 0) {
            in.release(self, x_previous);
            w_in.release(self, w_previous);
        }
        x_previous = x_state.stage;
        w_previous = w_state.stage;
        in.advance(self, x_state);
        w_in.advance(self, w_state);
    }
    if constexpr (live > 0) {
        warpgroup_mma::wait<0>();
        warpgroup_mma::pin<N * R / 128>(d);
    }
    in.release(self, x_previous);
    w_in.release(self, w_previous);
}

PIPELINK_ENTRY(expert_gemm, run)
(pl::Self self, const pl::Tile& tile, pl::RingState& x_state, pl::RingState& w_state, float* d) {
    tile_n.dispatch(self, [&](auto N) {
        rows.dispatch(self, [&](auto R) {
            if constexpr (N * R <= largest_accumulator) {
                const int first = pl::role_thread(self) / 128 * R;
                const int have = __shfl_sync(~0u, tile.end - tile.first - first, 0);
                if (R > 64 && have > 64) {
                    multiply_tile<N, R, R / 64>(self, x_state, w_state, d);
                } else if (have > 0) {
                    multiply_tile<N, R, 1>(self, x_state, w_state, d);
                } else {
                    multiply_tile<N, R, 0>(self, x_state, w_state, d);
                }
            }
        });
    });
}

// Blocks walk the groups, in a group bands of `raster_rows` row tiles, in a band column by column:
// a wave's weights are then shared through L2 by the rows of its band. `tile` is still the block's
// last one: the walk goes on from its group.
PIPELINK_ENTRY(expert_gemm, schedule)
(pl::Self self, int index, pl::Tile& tile, const int* ends, int) {
    const int columns_ = column_tiles.at(self), height = tile_m.at(self);
    const int band_rows = raster_rows.at(self);
    const int number = blockIdx.x + index * gridDim.x;
    int before = 0;  // tiles of the groups before this one
    if (index == 0) {
        tile.group = 0;
        tile.first = 0;
    } else {
        // What the last call computed, backwards.
        const int band = tile.row / band_rows;
        const int begin = ends[tile.group];
        const int row_tiles = (ends[tile.group + 1] - begin + height - 1) / height;
        const int tall = min(band_rows, row_tiles - band * band_rows);
        const int within = band * band_rows * columns_ + tile.column * tall + tile.row % band_rows;
        before = number - static_cast<int>(gridDim.x) - within;
        tile.first = begin;
    }
    int end = ends[tile.group + 1];
    int row_tiles = (end - tile.first + height - 1) / height;
    while (number >= before + row_tiles * columns_) {
        before += row_tiles * columns_;
        if (++tile.group == experts.at(self)) return false;
        tile.first = end;
        end = ends[tile.group + 1];
        row_tiles = (end - tile.first + height - 1) / height;
    }
    const int band = (number - before) / (band_rows * columns_);
    const int within = number - before - band * band_rows * columns_;
    const int tall = min(band_rows, row_tiles - band * band_rows);
    tile.column = within / tall;
    tile.row = band * band_rows + within - tile.column * tall;
    tile.first += tile.row * height;
    tile.end = min(tile.first + height, end);
    return true;
}

}  // namespace expert_gemm
