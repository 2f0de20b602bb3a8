// A gated activation of an accumulator in registers, whose columns are gate and up columns of the
// same outputs: act(gate) * up. `run` stores it to global memory as bf16, and leaves out rows past
// the tensor's end; `activate` hands it on in registers.
#include <pipelink/component.cuh>

namespace swiglu {
namespace pl = pipelink;
using namespace pl::literals;

// How gate and up columns stand in a tile: in halves, or eight after eight in turns.
constexpr auto pairing = pl::chooses<"pairing", "gate_first"_t, "up_first"_t, "interleaved"_t>();
constexpr auto activation = pl::chooses<"activation", "silu"_t, "gelu"_t, "relu"_t>();
// The gate is at most this, and up within it on both sides; 0 is no limit.
constexpr auto limit = pl::chooses<"limit", 0, 7, 10>();
constexpr auto tile_m = pl::imports<"tile_m">();
constexpr auto tile_n = pl::imports<"tile_n", 256, 160, 128, 64>();
constexpr auto rows = pl::imports<"rows", 64, 128>();
constexpr auto warpgroups = pl::imports<"warpgroups">();
constexpr auto intermediate = pl::imports<"intermediate">();
constexpr auto n = pl::derives<"n">(2_n * intermediate);
constexpr auto columns = pl::derives<"columns">(intermediate * 1_n);
constexpr auto tile_columns = pl::derives<"tile_columns">(tile_n / 2_n);
constexpr auto m = pl::extent<"m">();

constexpr auto acc =
    pl::fragment_in<"acc", float,
                    "((4,8,4),(2,2,tile_n/8,rows/64)):((2*rows,1,16),(rows,8,8*rows,64))">(
        pl::shape(tile_m, tile_n));
using Handed = float;  // what `activate` hands on
constexpr auto act =
    pl::fragment_out<"act", Handed,
                     "((4,8,4),(2,2,tile_n/16,rows/64)):((2*rows,1,16),(rows,8,8*rows,64))">(
        pl::shape(tile_m, tile_columns));
constexpr auto out = pl::array_out<"out", pl::bf16>(pl::shape(m, intermediate))
                         .covers(pl::by_row(tile_m).clipped(), pl::by_column(tile_n / 2_n));

constexpr int largest_accumulator = 128 * 160;  // rows * tile_n that this code is compiled for

constexpr auto run = pl::entry<"run">()(pl::tile, acc, out, m);
constexpr auto activate = pl::entry<"activate">()(acc, act);

constexpr auto halves = pl::requires_that(
    tile_n % 16_n == 0_n, "the gate and up columns of an output meet in one thread");
constexpr auto accumulator_fits =
    pl::requires_that(rows * tile_n <= pl::Literal<largest_accumulator>{},
                      "an accumulator of more than 160 registers a thread spills");
constexpr auto warps = pl::claims_warps(warpgroups * 4_n);
constexpr auto registers = pl::claims_registers(40_n + rows * tile_n / 128_n);

constexpr auto contract = pl::contract<"swiglu", "activation", "1.0.0">(
    pairing, activation, limit, tile_m, tile_n, rows, warpgroups, intermediate, n, columns,
    tile_columns, m, halves, accumulator_fits, warps, registers, acc, act, out, run, activate);

PIPELINK_COMPONENT(swiglu, contract)

__device__ __forceinline__ float gated(pl::Self self, float gate, float up) {
    if (limit.at(self) > 0) {
        const float most = limit.at(self);
        gate = fminf(gate, most);
        up = fminf(fmaxf(up, -most), most);
    }
    if (activation.at(self) == pl::Text<"relu">::bound) return fmaxf(gate, 0.0f) * up;
    // gelu by its sigmoid: tanh's argument is 0.79788456 * (x + 0.044715 * x^3), half the
    // sigmoid's.
    const float z = activation.at(self) == pl::Text<"gelu">::bound
                        ? 1.5957691f * (gate + 0.044715f * gate * gate * gate)
                        : gate;
    return gate * up * __fdividef(1.0f, 1.0f + __expf(-z));
}

// Where a thread's gate and up values of eight outputs stand, eight columns after eight.
template <int N>
__device__ __forceinline__ int gate_block(pl::Self self, int j) {
    if (pairing.at(self) == pl::Text<"interleaved">::bound) return 2 * j;
    return pairing.at(self) == pl::Text<"gate_first">::bound ? j : j + N / 16;
}
template <int N>
__device__ __forceinline__ int up_block(pl::Self self, int j) {
    if (pairing.at(self) == pl::Text<"interleaved">::bound) return 2 * j + 1;
    return pairing.at(self) == pl::Text<"gate_first">::bound ? j + N / 16 : j;
}

// One 64-row block: this thread has rows `row` and `row` + 8, and two columns of every eight.
template <int N>
__device__ __forceinline__ void store_block(pl::Self self, const float* d, pl::bf16* target,
                                            int row, int row_end, int stride) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= row_end) continue;
        pl::bf16* line = target + static_cast<long long>(row + 8 * half) * stride;
#pragma unroll
        for (int j = 0; j < N / 16; ++j) {
            const float* gate = d + 4 * gate_block<N>(self, j) + 2 * half;
            const float* up = d + 4 * up_block<N>(self, j) + 2 * half;
            *reinterpret_cast<__nv_bfloat162*>(line + 8 * j) =
                __floats2bfloat162_rn(gated(self, gate[0], up[0]), gated(self, gate[1], up[1]));
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
        store_block<N>(self, d + block * (N / 2), target + column, row + 64 * block, row_end,
                       stride);
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

PIPELINK_ENTRY(swiglu, activate)(pl::Self self, const float* d, Handed* result) {
    tile_n.dispatch(self, [&](auto N) {
        rows.dispatch(self, [&](auto R) {
            if constexpr (N * R <= largest_accumulator) {
#pragma unroll
                for (int block = 0; block < R / 64; ++block) {
#pragma unroll
                    for (int j = 0; j < N / 16; ++j) {
                        const float* gate = d + block * (N / 2) + 4 * gate_block<N>(self, j);
                        const float* up = d + block * (N / 2) + 4 * up_block<N>(self, j);
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            result[block * (N / 4) + 4 * j + i] = gated(self, gate[i], up[i]);
                        }
                    }
                }
            }
        });
    });
}

}  // namespace swiglu
