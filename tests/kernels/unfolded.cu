// A binding that can not fold: its instance number is known at run time only.
#include <pipelink/component.cuh>

namespace unfolded {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto value = pl::chooses<"value", 1, 2>();
constexpr auto n = pl::extent<"n">();
constexpr auto y = pl::array_out<"y", int>(pl::shape(n));
constexpr auto run = pl::entry<"run">()(pl::tile, y, n);
constexpr auto schedule = pl::schedule<"schedule">()(n);

constexpr auto contract = pl::contract<"unfolded", "test-team", "1.0.0">(
    value, n, pl::claims_warps(1_n), y, run, schedule);

PIPELINK_COMPONENT(unfolded, contract)

PIPELINK_ENTRY(unfolded, run)(pl::Self self, const pl::Tile& tile, int* target, int size) {
    const auto other = static_cast<pl::Self>(static_cast<unsigned>(self) + size);
    target[tile.row] = static_cast<int>(value.at(other));
}

PIPELINK_ENTRY(unfolded, schedule)(pl::Self self, int index, pl::Tile& tile, int size) {
    tile = {static_cast<int>(blockIdx.x), index};
    return index == 0;
}

}  // namespace unfolded
