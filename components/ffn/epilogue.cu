// SwiGLU on an accumulator in registers: the left half of a tile's columns is the gate, the right
// half is up; silu(gate) * up goes to global memory as bf16. Rows past the tensor's end are left
// out.
#include <pipelink/component.cuh>

namespace swiglu {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto tile_m = pl::imports<"tile_m">();
constexpr auto tile_n = pl::imports<"tile_n", 256, 160, 128, 64>();
constexpr auto rows = pl::imports<"rows", 64, 128>();
constexpr auto warpgroups = pl::imports<"warpgroups">();
constexpr auto intermediate = pl::imports<"intermediate">();
constexpr auto m = pl::extent<"m">();

constexpr auto acc =
    pl::fragment_in<"acc", float,
                    "((4,8,4),(2,2,tile_n/8,rows/64)):((2*rows,1,16),(rows,8,8*rows,64))">(
        pl::shape(tile_m, tile_n));
constexpr auto out = pl::array_out<"out", pl::bf16>(pl::shape(m, intermediate))
                         .covers(pl::by_row(tile_m).clipped(), pl::by_column(tile_n / 2_n));

constexpr int largest_accumulator = 128 * 160;  // rows * tile_n that this code is compiled for

constexpr auto run = pl::entry<"run">()(pl::tile, acc, out, m);

constexpr auto halves = pl::requires_that(
    tile_n % 16_n == 0_n, "the gate and up columns of an output meet in one thread");
constexpr auto accumulator_fits =
    pl::requires_that(rows * tile_n <= pl::Literal<largest_accumulator>{},
                      "an accumulator of more than 160 registers a thread spills");
constexpr auto warps = pl::claims_warps(warpgroups * 4_n);
constexpr auto registers = pl::claims_registers(40_n + rows * tile_n / 128_n);

constexpr auto contract = pl::contract<"swiglu", "activation", "1.0.0">(
    tile_m, tile_n, rows, warpgroups, intermediate, m, halves, accumulator_fits, warps, registers,
    acc, out, run);

PIPELINK_COMPONENT(swiglu, contract)

__device__ __forceinline__ float activate(float gate, float up) {
    return gate * up * __fdividef(1.0f, 1.0f + __expf(-gate));
}

// One 64-row block: this thread has rows `row` and `row` + 8, and two columns of every eight.
template <int N>
__device__ __forceinline__ void store_block(const float* d, pl::bf16* target, int row, int row_end,
                                            int stride) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= row_end) continue;
        pl::bf16* line = target + static_cast<long long>(row + 8 * half) * stride;
#pragma unroll
        for (int j = 0; j < N / 16; ++j) {
            const float* gate = d + 4 * j + 2 * half;
            const float* up = gate + N / 4;
            *reinterpret_cast<__nv_bfloat162*>(line + 8 * j) =
                __floats2bfloat162_rn(activate(gate[0], up[0]), activate(gate[1], up[1]));
        }
    }
}

template <int N, int R>
__device__ __forceinline__ void store_tile(pl::Self self, const pl::Tile& tile, const float* d,
                                           pl::bf16* target, int row_end) {
    const unsigned thread = pl::role_thread(self);
    const unsigned lane = thread % 32;
    const int warp = thread / 32;
    const int stride = intermediate.at(self);
    const int row = tile.row * tile_m.at(self) + warp / 4 * R + warp % 4 * 16 + lane / 4;
    const int column = tile.column * (N / 2) + lane % 4 * 2;
#pragma unroll
    for (int block = 0; block < R / 64; ++block) {
        store_block<N>(d + block * (N / 2), target + column, row + 64 * block, row_end, stride);
    }
}

PIPELINK_ENTRY(swiglu, run)
(pl::Self self, const pl::Tile& tile, const float* d, pl::bf16* target, int row_end) {
    tile_n.dispatch(self, [&](auto n) {
        rows.dispatch(self, [&](auto r) {
            if constexpr (n * r <= largest_accumulator)
                store_tile<n, r>(self, tile, d, target, row_end);
        });
    });
}

}  // namespace swiglu
