// The end of a grouped product: rows of the accumulator go to memory.
//
// `store` leaves them in expert-sorted order. The other two bring them back to the order of tokens,
// in one of two modes. Deterministic: `scatter` puts the row of each route at its place, [token,
// choice], and `sum`, a kernel of its own, adds a token's rows in the order of its choices,
// weighted by the router. Fast: `add` weights and adds into the token's row in memory, in whatever
// order tiles end.
#include <pipelink/component.cuh>

namespace combine {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto vector = pl::chooses<"vector", 16, 8, 4>();  // bytes of a store
constexpr auto cache = pl::chooses<"cache", "normal"_t, "streaming"_t, "through"_t>();
constexpr auto sum_warps = pl::chooses<"sum_warps", 8, 4, 16>();
constexpr auto tile_m = pl::imports_or<"tile_m", 128>();
constexpr auto rows = pl::imports_or<"rows", 64, 128>();
constexpr auto warpgroups = pl::imports_or<"warpgroups", 2>();
constexpr auto tile_columns = pl::imports_or<"tile_columns", 128, 32, 64, 256>();
constexpr auto columns = pl::imports<"columns">();
constexpr auto top_k = pl::imports<"top_k">();
constexpr auto tokens = pl::extent<"tokens">();
constexpr auto routes = pl::extent<"routes">();

constexpr auto acc =
    pl::fragment_in<"acc", float,
                    "((4,8,4),(2,2,tile_columns/8,rows/64)):((2*rows,1,16),(rows,8,8*rows,64))">(
        pl::shape(tile_m, tile_columns));
constexpr auto order = pl::array_in<"order", int>(pl::shape(routes))
                           .count(pl::shape(tokens, top_k))
                           .below(pl::shape(tokens, top_k))
                           .distinct();
constexpr auto probs = pl::array_in<"probs", float>(pl::shape(tokens, top_k));
constexpr auto sorted = pl::array_out<"sorted", pl::bf16>(pl::shape(routes, columns))
                            .covers(pl::by_group(tile_m), pl::by_column(tile_columns));
constexpr auto slots = pl::array_out<"slots", pl::bf16>(pl::shape(tokens, top_k, columns));
constexpr auto total = pl::array_out<"total", float>(pl::shape(tokens, columns)).adds();
constexpr auto parts = pl::array_in<"parts", pl::bf16>(pl::shape(tokens, top_k, columns))
                           .covers(pl::by_row(1_n), pl::whole(top_k), pl::whole(columns));
constexpr auto out = pl::array_out<"out", pl::bf16>(pl::shape(tokens, columns))
                         .covers(pl::by_row(1_n), pl::whole(columns));

constexpr auto store = pl::entry<"store">()(pl::tile, acc, sorted);
constexpr auto scatter = pl::entry<"scatter">()(pl::tile, acc, order, slots).by_groups();
constexpr auto add = pl::entry<"add">()(pl::tile, acc, order, probs, total).by_groups();
constexpr auto sum = pl::entry<"sum">()(pl::tile, parts, probs, out);
constexpr auto sum_schedule = pl::schedule<"sum_schedule">()(tokens).tiles(
    pl::steps_over(tokens, 1_n), pl::steps_over(1_n, 1_n));

constexpr int largest_accumulator =
    128 * 160;  // rows * tile_columns that this code is compiled for
constexpr auto accumulator_fits =
    pl::requires_that(rows * tile_columns <= pl::Literal<largest_accumulator>{},
                      "an accumulator of more than 160 registers a thread spills");
constexpr auto whole_vectors =
    pl::requires_that(columns % 8_n == 0_n, "a row is summed 16 bytes at a time");
constexpr auto warps = pl::claims_warps(warpgroups * 4_n).during<"store", "scatter", "add">();
constexpr auto registers =
    pl::claims_registers(72_n + rows * tile_columns / 128_n).during<"store", "scatter", "add">();
constexpr auto warps_of_sum = pl::claims_warps(sum_warps).during<"sum">();

constexpr auto contract = pl::contract<"combine", "combination", "1.0.0">(
    vector, cache, sum_warps, tile_m, rows, warpgroups, tile_columns, columns, top_k, tokens,
    routes, accumulator_fits, whole_vectors, warps, registers, warps_of_sum, acc, order, probs,
    sorted, slots, total, parts, out, store, scatter, add, sum, sum_schedule);

PIPELINK_COMPONENT(combine, contract)

// Stores `count` words at once, the way that `cache` says.
template <int count>
__device__ __forceinline__ void put(pl::Self self, void* target, const unsigned* words) {
    const auto bound = cache.at(self);
#define COMBINE_PUT(how)                                                                        \
    if constexpr (count == 4) {                                                                 \
        asm volatile("st.global" how ".v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(target),           \
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])                 \
                     : "memory");                                                               \
    } else if constexpr (count == 2) {                                                          \
        asm volatile("st.global" how ".v2.b32 [%0], {%1, %2};" ::"l"(target), "r"(words[0]),    \
                     "r"(words[1])                                                              \
                     : "memory");                                                               \
    } else {                                                                                    \
        asm volatile("st.global" how ".b32 [%0], %1;" ::"l"(target), "r"(words[0]) : "memory"); \
    }
    if (bound == pl::Text<"streaming">::bound) {
        COMBINE_PUT(".cs")
    } else if (bound == pl::Text<"through">::bound) {
        COMBINE_PUT(".wt")
    } else {
        COMBINE_PUT("")
    }
#undef COMBINE_PUT
}

template <int count>
__device__ __forceinline__ void add_to(float* target, const unsigned* words) {
    if constexpr (count == 4) {
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target),
                     "f"(__uint_as_float(words[0])), "f"(__uint_as_float(words[1])),
                     "f"(__uint_as_float(words[2])), "f"(__uint_as_float(words[3]))
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(target),
                     "f"(__uint_as_float(words[0])), "f"(__uint_as_float(words[1]))
                     : "memory");
    } else {
        asm volatile("red.global.add.f32 [%0], %1;" ::"l"(target), "f"(__uint_as_float(words[0]))
                     : "memory");
    }
}

// Lane `l` of a pair that differs in bit `mask` keeps what stands at place (l has the bit) in both
// lanes: a transposition of two by two.
template <int size>
__device__ __forceinline__ void exchange(unsigned (&a)[size], unsigned (&b)[size], unsigned lane,
                                         unsigned mask) {
    const bool high = lane & mask;
#pragma unroll
    for (int i = 0; i < size; ++i) {
        const unsigned given = high ? a[i] : b[i];
        const unsigned come = __shfl_xor_sync(~0u, given, mask);
        (high ? a[i] : b[i]) = come;
    }
}

__device__ __forceinline__ unsigned pack(const float* pair) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(pair[0], pair[1]);
    return reinterpret_cast<const unsigned&>(both);
}

// Four lanes of a row have two columns each of every eight. Below, `d` is a row's columns in this
// thread, eight after eight at a distance of four values, and `give(column, words)` takes `bytes`
// bytes of it at once.

// As bf16: a word is two columns.
template <int N, int bytes, class Give>
__device__ __forceinline__ void each_half(const float* d, unsigned lane, const Give& give) {
    const int quarter = lane % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j += bytes / 4) {
        if constexpr (bytes == 4) {
            const unsigned word = pack(d + 4 * j);
            give(8 * j + 2 * quarter, &word);
        } else if constexpr (bytes == 8) {
            unsigned a[1] = {pack(d + 4 * j)}, b[1] = {pack(d + 4 * j + 4)};
            exchange(a, b, lane, 1);
            const unsigned words[2] = {a[0], b[0]};
            give(8 * (j + quarter % 2) + 4 * (quarter / 2), words);
        } else {
            unsigned a[2] = {pack(d + 4 * j), pack(d + 4 * j + 4)};
            unsigned b[2] = {pack(d + 4 * j + 8), pack(d + 4 * j + 12)};
            exchange(a, b, lane, 2);
            unsigned even[2] = {a[0], b[0]}, odd[2] = {a[1], b[1]};
            exchange(even, odd, lane, 1);
            const unsigned words[4] = {even[0], odd[0], even[1], odd[1]};
            give(8 * (j + quarter / 2 * 2 + quarter % 2), words);
        }
    }
}

// As float32: a word is one column.
template <int N, int bytes, class Give>
__device__ __forceinline__ void each_float(const float* d, float scale, unsigned lane,
                                           const Give& give) {
    const int quarter = lane % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j += bytes == 16 ? 2 : 1) {
        unsigned a[2] = {__float_as_uint(scale * d[4 * j]), __float_as_uint(scale * d[4 * j + 1])};
        if constexpr (bytes == 16) {
            unsigned b[2] = {__float_as_uint(scale * d[4 * j + 4]),
                             __float_as_uint(scale * d[4 * j + 5])};
            exchange(a, b, lane, 1);
            const unsigned words[4] = {a[0], a[1], b[0], b[1]};
            give(8 * (j + quarter % 2) + 4 * (quarter / 2), words);
        } else if constexpr (bytes == 8) {
            give(8 * j + 2 * quarter, a);
        } else {
            give(8 * j + 2 * quarter, a);
            give(8 * j + 2 * quarter + 1, a + 1);
        }
    }
}

// Calls `row_of(row, d)` for each row of the tile that this thread has columns of; `row` counts
// from the tile's first one.
template <int N, int R, class Row>
__device__ __forceinline__ void each_row(pl::Self self, const float* d, const Row& row_of) {
    const unsigned thread = pl::role_thread(self);
    const int first = thread / 128 * R + thread % 128 / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int block = 0; block < R / 64; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            row_of(first + 64 * block + 8 * half, d + block * (N / 2) + 2 * half);
        }
    }
}

template <class Body>
__device__ __forceinline__ void of_tile(pl::Self self, const Body& body) {
    tile_columns.dispatch(self, [&](auto n) {
        rows.dispatch(self, [&](auto r) {
            if constexpr (n * r <= largest_accumulator) {
                vector.dispatch(self, [&](auto bytes) { body(n, r, bytes); });
            }
        });
    });
}

// Puts the tile's rows as bf16 where `place(row)` says, a row of all groups.
template <class Place>
__device__ __forceinline__ void put_tile(pl::Self self, const pl::Tile& tile, const float* d,
                                         pl::bf16* target, const Place& place) {
    const unsigned lane = pl::role_thread(self) % 32;
    const int stride = columns.at(self),
              column = tile.column * static_cast<int>(tile_columns.at(self));
    of_tile(self, [&](auto n, auto r, auto bytes) {
        each_row<n, r>(self, d, [&](int row, const float* values) {
            row += tile.first;
            const bool there = row < tile.end;
            const long long at_row = there ? place(row) : 0;
            pl::bf16* const line = target + at_row * stride + column;
            each_half<n, bytes>(values, lane, [&](int at, const unsigned* words) {
                if (there) put<bytes / 4>(self, line + at, words);
            });
        });
    });
}

PIPELINK_ENTRY(combine, store)
(pl::Self self, const pl::Tile& tile, const float* d, pl::bf16* target) {
    put_tile(self, tile, d, target, [](int row) { return row; });
}

PIPELINK_ENTRY(combine, scatter)
(pl::Self self, const pl::Tile& tile, const float* d, const int* list, pl::bf16* target) {
    put_tile(self, tile, d, target, [&](int row) { return list[row]; });
}

PIPELINK_ENTRY(combine, add)
(pl::Self self, const pl::Tile& tile, const float* d, const int* list, const float* weights,
 float* target) {
    const unsigned lane = pl::role_thread(self) % 32;
    const int stride = columns.at(self),
              column = tile.column * static_cast<int>(tile_columns.at(self));
    of_tile(self, [&](auto n, auto r, auto bytes) {
        each_row<n, r>(self, d, [&](int row, const float* values) {
            row += tile.first;
            const int route = row < tile.end ? list[row] : 0;
            const int token = route / static_cast<int>(top_k.at(self));
            float* const line = target + static_cast<long long>(token) * stride + column;
            each_float<n, bytes>(values, weights[route], lane, [&](int at, const unsigned* words) {
                if (row < tile.end) add_to<bytes / 4>(line + at, words);
            });
        });
    });
}

// A tile is a token.
PIPELINK_ENTRY(combine, sum)
(pl::Self self, const pl::Tile& tile, const pl::bf16* source, const float* weights,
 pl::bf16* target) {
    const int choices = top_k.at(self), stride = columns.at(self);
    weights += tile.row * choices;
    source += static_cast<long long>(tile.row) * choices * stride;
    target += static_cast<long long>(tile.row) * stride;
    for (int column = 8 * pl::role_thread(self); column < stride;
         column += 8 * 32 * sum_warps.at(self)) {
        float sums[8] = {};
#pragma unroll 8
        for (int choice = 0; choice < choices; ++choice) {
            const uint4 words = __ldcs(reinterpret_cast<const uint4*>(
                source + static_cast<long long>(choice) * stride + column));
            const unsigned pairs[4] = {words.x, words.y, words.z, words.w};
            const float weight = weights[choice];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                sums[2 * i] += weight * __uint_as_float(pairs[i] << 16);
                sums[2 * i + 1] += weight * __uint_as_float(pairs[i] & 0xffff0000u);
            }
        }
        const unsigned packed[4] = {pack(sums), pack(sums + 2), pack(sums + 4), pack(sums + 6)};
        put<4>(self, target + column, packed);
    }
}

PIPELINK_ENTRY(combine, sum_schedule)(pl::Self, int index, pl::Tile& tile, int count) {
    tile.row = blockIdx.x + index * gridDim.x;
    tile.column = 0;
    return tile.row < count;
}

}  // namespace combine
