// A warp-specialised matrix mainloop: consumer warpgroups multiply the tiles of a ring with wgmma
// and leave the accumulator in registers. It also owns the persistent tile schedule.
#include <pipelink/component.cuh>

#include "wgmma.cuh"

namespace wgmma_mainloop {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto warpgroups = pl::chooses<"warpgroups", 2, 1, 3>();
constexpr auto rows = pl::chooses<"rows", 64, 128>();  // of the tile, a warpgroup
constexpr auto tile_n = pl::chooses<"tile_n", 256, 160, 128, 64>();
constexpr auto tile_m = pl::derives<"tile_m">(warpgroups * rows);
constexpr auto raster_rows = pl::provides<"raster_rows", 16>();
constexpr auto tile_k = pl::imports<"tile_k", 64>();
constexpr auto stages = pl::imports<"stages">();
constexpr auto k_steps = pl::imports<"k_steps">();
constexpr auto column_tiles = pl::imports<"column_tiles">();
constexpr auto m = pl::extent<"m">();

constexpr auto x_tile = pl::part<"x", pl::bf16>(pl::shape(tile_m, tile_k), pl::swizzle_128);
constexpr auto w_tile = pl::part<"w", pl::bf16>(pl::shape(tile_n, tile_k), pl::swizzle_128);
constexpr auto in =
    pl::ring_in<"in">()(stages, pl::each_warpgroup, pl::async_proxy, x_tile, w_tile);

// The accumulator of wgmma m64nN, 64 rows after 64 rows: (thread, value) -> (row, column).
constexpr auto acc =
    pl::fragment_out<"acc", float,
                     "((4,8,4),(2,2,tile_n/8,rows/64)):((2*rows,1,16),(rows,8,8*rows,64))">(
        pl::shape(tile_m, tile_n));

// 160 registers a thread: with more, ptxas spills.
constexpr int largest_accumulator = 128 * 160;  // rows * tile_n of a warpgroup

// One stage stays in flight: a stage is released when the next one's products have been issued.
constexpr auto run = pl::entry<"run">()(in, acc).plays(
    pl::wait(in), pl::repeat(k_steps - 1_n, pl::wait(in), pl::release(in)), pl::release(in));
constexpr auto schedule = pl::schedule<"schedule">()(m).tiles(pl::steps_over(m, tile_m),
                                                              pl::steps_over(column_tiles, 1_n));

constexpr auto accumulator_fits =
    pl::requires_that(rows * tile_n <= pl::Literal<largest_accumulator>{},
                      "an accumulator of more than 160 registers a thread spills");
constexpr auto one_step =
    pl::requires_that(k_steps >= 1_n, "the first step overwrites the accumulator");
constexpr auto warps = pl::claims_warps(warpgroups * 4_n);
constexpr auto registers = pl::claims_registers(72_n + rows * tile_n / 128_n);

constexpr auto contract = pl::contract<"wgmma_mainloop", "matrix", "1.0.0">(
    warpgroups, rows, tile_n, tile_m, raster_rows, tile_k, stages, k_steps, column_tiles, m,
    accumulator_fits, one_step, warps, registers, in, acc, run, schedule);

PIPELINK_COMPONENT(wgmma_mainloop, contract)

template <int N, int R>
__device__ __forceinline__ void multiply_stage(float* d, std::uint32_t x, std::uint32_t w,
                                               bool first) {
    constexpr int k_blocks = 4;  // of 16 in tile_k
#pragma unroll
    for (int k = 0; k < k_blocks; ++k) {
#pragma unroll
        for (int block = 0; block < R / 64; ++block) {
            warpgroup_mma::multiply<N>(d + block * (N / 2),
                                       warpgroup_mma::descriptor(x + block * 64 * 128 + k * 32),
                                       warpgroup_mma::descriptor(w + k * 32), !first || k > 0);
        }
    }
}

template <int N, int R>
__device__ __forceinline__ void multiply_tile(pl::Self self, pl::RingState& state, float* d) {
    const unsigned warpgroup = pl::role_thread(self) / 128;
    unsigned previous = 0;
    for (int step = 0; step < k_steps.at(self); ++step) {
        in.wait(self, state);
        const auto x = in.address(self, x_tile, state) + warpgroup * R * 128;
        warpgroup_mma::pin<N * R / 128>(d);
        warpgroup_mma::fence();
        multiply_stage<N, R>(d, x, in.address(self, w_tile, state), step == 0);
        warpgroup_mma::commit();
        warpgroup_mma::wait<1>();
        if (step > 0) in.release(self, previous);
        previous = state.stage;
        in.advance(self, state);
    }
    warpgroup_mma::wait<0>();
    warpgroup_mma::pin<N * R / 128>(d);
    in.release(self, previous);
}

PIPELINK_ENTRY(wgmma_mainloop, run)(pl::Self self, pl::RingState& state, float* d) {
    tile_n.dispatch(self, [&](auto n) {
        rows.dispatch(self, [&](auto r) {
            if constexpr (n * r <= largest_accumulator) multiply_tile<n, r>(self, state, d);
        });
    });
}

// Blocks walk bands of `raster_rows` row tiles, column by column: a wave's weights are then shared
// through L2 by the rows of its band.
PIPELINK_ENTRY(wgmma_mainloop, schedule)
(pl::Self self, int index, pl::Tile& tile, int m_rows) {
    const int row_tiles =
        (m_rows + static_cast<int>(tile_m.at(self)) - 1) / static_cast<int>(tile_m.at(self));
    const int columns = column_tiles.at(self);
    const int number = blockIdx.x + index * gridDim.x;
    if (number >= row_tiles * columns) return false;
    const int band_rows = raster_rows.at(self);
    const int band = number / (band_rows * columns);
    const int within = number - band * band_rows * columns;
    const int height = min(band_rows, row_tiles - band * band_rows);
    tile.column = within / height;
    tile.row = band * band_rows + within - tile.column * height;
    return true;
}

}  // namespace wgmma_mainloop
