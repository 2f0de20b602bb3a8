// Values that go through tensor memory and back: each thread of four warps has a lane, and the
// columns come from the link. For targets that have tensor memory; it never ran on one.
#include <pipelink/component.cuh>

namespace columns {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto n = pl::extent<"n">();
constexpr auto x = pl::array_in<"x", int>(pl::shape(n)).covers(pl::by_row(128_n).clipped());
constexpr auto y = pl::array_out<"y", int>(pl::shape(n)).covers(pl::by_row(128_n).clipped());
constexpr auto first = pl::claims_tensor_columns<"first">(96_n);
constexpr auto second = pl::claims_tensor_columns<"second">(32_n);
constexpr auto warps = pl::claims_warps(4_n);
constexpr auto run = pl::entry<"run">()(pl::tile, x, y, n);
constexpr auto schedule =
    pl::schedule<"schedule">()(n).tiles(pl::steps_over(n, 128_n), pl::steps_over(1_n, 1_n));

constexpr auto contract =
    pl::contract<"columns", "test-team", "1.0">(n, x, y, first, second, warps, run, schedule);
PIPELINK_COMPONENT(columns, contract)

__device__ __forceinline__ int through(std::uint32_t address, int value) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(address), "r"(value)
                 : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];"
                 : "=r"(value)
                 : "r"(address)
                 : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    return value;
}

PIPELINK_ENTRY(columns, run)
(pl::Self self, const pl::Tile& tile, const int* source, int* target, int size) {
    const unsigned thread = pl::role_thread(self);
    const int at = tile.row * 128 + static_cast<int>(thread);
    const std::uint32_t lane = thread / 32 * 32 << 16;
    const int value = at < size ? source[at] : 0;
    const int once = through(first.address(self) + lane, value);
    const int twice = through(second.address(self) + lane, once);
    if (at < size) target[at] = twice;
}

PIPELINK_ENTRY(columns, schedule)(pl::Self, int index, pl::Tile& tile, int size) {
    tile.row = blockIdx.x + index * gridDim.x;
    tile.column = 0;
    return tile.row * 128 < size;
}

}  // namespace columns
