// Reverses tiles of 128 floats through shared memory: a claim of each kind, and its own schedule.
#include <pipelink/component.cuh>

namespace reverse {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto tile_size = pl::provides<"tile_size", 128>();
constexpr auto n = pl::extent<"n">();
constexpr auto x = pl::array_in<"x", float>(pl::shape(n)).covers(pl::by_row(tile_size).clipped());
constexpr auto y = pl::array_out<"y", float>(pl::shape(n)).covers(pl::by_row(tile_size).clipped());
constexpr auto staging = pl::claims_array<"staging", float, 256>(tile_size);
constexpr auto written = pl::claims_barrier<"written">(tile_size);
constexpr auto read = pl::claims_mbarriers<"read">(1_n, pl::each_thread);
constexpr auto run = pl::entry<"run">()(pl::tile, x, y, n);
constexpr auto schedule =
    pl::schedule<"schedule">()(n).tiles(pl::steps_over(n, tile_size), pl::steps_over(1_n, 1_n));
constexpr auto warps = pl::claims_warps(4_n);
constexpr auto one_each =
    pl::requires_that(pl::role_threads == tile_size, "a thread moves one value of a tile");

constexpr auto contract = pl::contract<"reverse", "test-team", "1.0.0">(
    tile_size, n, staging, written, read, warps, one_each, x, y, run, schedule);

PIPELINK_COMPONENT(reverse, contract)

PIPELINK_ENTRY(reverse, run)
(pl::Self self, const pl::Tile& tile, const float* source, float* target, int size) {
    const unsigned thread = pl::role_thread(self);
    const int first = tile.row * static_cast<int>(tile_size.at(self));
    const int at = first + static_cast<int>(thread);
    const float value = at < size ? source[at] : 0.0f;
    float* const tile_values = staging.pointer(self);
    tile_values[thread] = value;
    written.sync(self);
    const float other = tile_values[tile_size.at(self) - 1 - thread];
    written.sync(self);
    if (at < size) target[at] = other;
    read.arrive(self, 0);
    read.wait(self, 0, tile.column & 1);
}

// `column` counts the tiles of a block: the phase of its mbarrier.
PIPELINK_ENTRY(reverse, schedule)(pl::Self self, int index, pl::Tile& tile, int size) {
    const int number = blockIdx.x + index * gridDim.x;
    tile.row = number;
    tile.column = index;
    return number * static_cast<int>(tile_size.at(self)) < size;
}

}  // namespace reverse
