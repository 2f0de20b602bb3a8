// A contract that the device pass sees with another value than the host pass.
#include <pipelink/component.cuh>

namespace two_faced {
namespace pl = pipelink;
using namespace pl::literals;

#ifdef __CUDA_ARCH__
constexpr auto value = pl::provides<"value", 1>();
#else
constexpr auto value = pl::provides<"value", 2>();
#endif
constexpr auto n = pl::extent<"n">();
constexpr auto y = pl::array_out<"y", int>(pl::shape(n));
constexpr auto run = pl::entry<"run">()(pl::tile, y, n);
constexpr auto schedule = pl::schedule<"schedule">()(n);

constexpr auto contract = pl::contract<"two_faced", "test-team", "1.0.0">(
    value, n, pl::claims_warps(1_n), y, run, schedule);

PIPELINK_COMPONENT(two_faced, contract)

PIPELINK_ENTRY(two_faced, run)(pl::Self self, const pl::Tile& tile, int* target, int size) {
    target[tile.row] = static_cast<int>(value.at(self)) + size;
}

PIPELINK_ENTRY(two_faced, schedule)(pl::Self self, int index, pl::Tile& tile, int size) {
    tile = {static_cast<int>(blockIdx.x), index};
    return index == 0;
}

}  // namespace two_faced
