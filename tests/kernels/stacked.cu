// An array that is indexed at run time, so that it lies on the stack.
#include <pipelink/component.cuh>

namespace stacked {
namespace pl = pipelink;
using namespace pl::literals;

#ifdef STACK_BYTES
#define DECLARED pl::claims_stack(pl::Literal<STACK_BYTES>{}),
#else
#define DECLARED
#endif
constexpr auto n = pl::extent<"n">();
constexpr auto y = pl::array_out<"y", int>(pl::shape(n));
constexpr auto run = pl::entry<"run">()(pl::tile, y, n);
constexpr auto schedule = pl::schedule<"schedule">()(n);

constexpr auto contract = pl::contract<"stacked", "test-team", "1.0.0">(
    DECLARED n, pl::claims_warps(1_n), y, run, schedule);

PIPELINK_COMPONENT(stacked, contract)

PIPELINK_ENTRY(stacked, run)(pl::Self self, const pl::Tile& tile, int* target, int size) {
    int local[64];
    for (int i = 0; i < 64; ++i) local[target[i] % 64] = i;
    target[tile.row] = local[size % 64];
}

PIPELINK_ENTRY(stacked, schedule)(pl::Self self, int index, pl::Tile& tile, int size) {
    tile = {static_cast<int>(blockIdx.x), index};
    return index == 0;
}

}  // namespace stacked
