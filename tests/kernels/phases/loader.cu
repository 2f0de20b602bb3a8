// Rows of x into a ring by bulk copies, one tile ahead: `prefetch` copies a block's first tile
// while the phase before the loop over tiles still runs, and each tile's step copies the next.
#include <pipelink/component.cuh>

namespace row_loader {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto rows = pl::provides<"rows", 64>();
constexpr auto columns = pl::provides<"columns", 64>();
constexpr auto stages = pl::chooses<"stages", 2, 3, 4>();
constexpr auto m = pl::extent<"m">();
constexpr auto x =
    pl::tensor_map_in<"x", pl::bf16>(pl::shape(m, columns), pl::box(rows, columns), pl::swizzle_128)
        .covers(pl::by_row(rows), pl::whole(columns));
constexpr auto tile = pl::part<"tile", pl::bf16>(pl::shape(rows, columns), pl::swizzle_128)
                          .filled_by(x, 1_n)
                          .edge_zero();
constexpr auto out = pl::ring_out<"out">()(stages, pl::by_copies, tile);
constexpr auto warps = pl::claims_warps(1_n);
constexpr auto prefetch =
    pl::entry<"prefetch">()(x, out, m).plays(pl::maybe<"first">(pl::fill(out))).by_one_thread();
constexpr auto run =
    pl::entry<"run">()(pl::tile, x, out, m).plays(pl::maybe<"next">(pl::fill(out))).by_one_thread();
constexpr auto schedule =
    pl::schedule<"schedule">()(m).tiles(pl::steps_over(m, rows), pl::steps_over(1_n, 1_n));

constexpr auto contract = pl::contract<"row_loader", "data-movement", "1.0">(
    rows, columns, stages, m, x, out, warps, prefetch, run, schedule);
PIPELINK_COMPONENT(row_loader, contract)

__device__ __forceinline__ void fill(pl::Self self, int row, const pl::TensorMap* map,
                                     pl::RingState& state, int end) {
    if (row >= end) return;
    out.acquire(self, state);
    const auto barrier = out.expect(self, state);
    pl::bulk_load_2d(out.address(self, tile, state), map, 0, row, barrier);
    out.advance(self, state);
}

PIPELINK_ENTRY(row_loader, prefetch)
(pl::Self self, const pl::TensorMap* map, pl::RingState& state, int end) {
    fill(self, static_cast<int>(blockIdx.x * rows.at(self)), map, state, end);
}

PIPELINK_ENTRY(row_loader, run)
(pl::Self self, const pl::Tile& at, const pl::TensorMap* map, pl::RingState& state, int end) {
    fill(self, static_cast<int>((at.row + gridDim.x) * rows.at(self)), map, state, end);
}

PIPELINK_ENTRY(row_loader, schedule)(pl::Self self, int index, pl::Tile& at, int end) {
    at.row = blockIdx.x + index * gridDim.x;
    at.column = 0;
    return at.row * static_cast<int>(rows.at(self)) < end;
}

}  // namespace row_loader
