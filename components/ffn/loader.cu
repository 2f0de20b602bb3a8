// A producer that keeps a ring of stages filled with bulk tensor copies (TMA): per stage one tile
// of the activations and one tile of weights, its upper half gate rows and its lower half up rows.
//
// The rows of x past m are undefined in a stage: a tile of `x_pieces` pieces is copied piece by
// piece up to the last one with a row of x. (A bulk copy fills rows that do not exist slower than
// it copies rows that do.)
#include <pipelink/component.cuh>

namespace tma_loader {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto stages = pl::chooses<"stages", 4, 2, 3, 5, 6, 8>();
constexpr auto x_pieces = pl::chooses<"x_pieces", 1, 2, 4, 8, 16>();
constexpr auto tile_k = pl::provides<"tile_k", 64>();
constexpr auto hidden = pl::imports<"hidden">();
constexpr auto intermediate = pl::imports<"intermediate">();
constexpr auto tile_m = pl::imports<"tile_m">();
constexpr auto tile_n = pl::imports<"tile_n">();
// The tiles of weights have gate rows above up rows.
constexpr auto pairing = pl::imports<"pairing", "gate_first"_t>();
constexpr auto k_steps = pl::derives<"k_steps">(hidden / tile_k);
constexpr auto column_tiles = pl::derives<"column_tiles">(intermediate / (tile_n / 2_n));
constexpr auto m = pl::extent<"m">();

constexpr auto half_n = tile_n / 2_n;  // gate rows of a tile of weights, and as many up rows
constexpr auto box = pl::box(half_n, tile_k);
constexpr auto x = pl::tensor_map_in<"x", pl::bf16>(
                       pl::shape(m, hidden), pl::box(tile_m / x_pieces, tile_k), pl::swizzle_128)
                       .covers(pl::by_row(tile_m), pl::whole(k_steps* tile_k));
constexpr auto gate =
    pl::tensor_map_in<"gate", pl::bf16>(pl::shape(intermediate, hidden), box, pl::swizzle_128)
        .covers(pl::by_column(half_n), pl::whole(k_steps* tile_k));
constexpr auto up =
    pl::tensor_map_in<"up", pl::bf16>(pl::shape(intermediate, hidden), box, pl::swizzle_128)
        .covers(pl::by_column(half_n), pl::whole(k_steps* tile_k));

constexpr auto x_tile = pl::part<"x", pl::bf16>(pl::shape(tile_m, tile_k), pl::swizzle_128)
                            .filled_by(x, x_pieces)
                            .edge_undefined();
constexpr auto w_tile = pl::part<"w", pl::bf16>(pl::shape(tile_n, tile_k), pl::swizzle_128)
                            .filled_by(gate, 1_n)
                            .filled_by(up, 1_n);
constexpr auto out = pl::ring_out<"out">()(stages, pl::by_copies, x_tile, w_tile);

constexpr auto run =
    pl::entry<"run">()(pl::tile, x, gate, up, out, m).plays(pl::repeat(k_steps, pl::fill(out)));

constexpr auto whole_steps =
    pl::requires_that(hidden % tile_k == 0_n, "the loop over k has no partial step");
constexpr auto whole_columns =
    pl::requires_that(intermediate % (tile_n / 2_n) == 0_n, "weight tiles have no ragged edge");
constexpr auto whole_pieces =
    pl::requires_that(tile_m % (x_pieces * 8_n) == 0_n,
                      "a piece has whole groups of 8 rows, which a swizzle permutes");
constexpr auto warps = pl::claims_warps(4_n);
constexpr auto registers = pl::claims_registers(40_n);

constexpr auto contract = pl::contract<"tma_loader", "data-movement", "1.0.0">(
    stages, x_pieces, tile_k, pairing, hidden, intermediate, tile_m, tile_n, k_steps, column_tiles,
    m, whole_steps, whole_columns, whole_pieces, warps, registers, x, gate, up, out, run);

PIPELINK_COMPONENT(tma_loader, contract)

PIPELINK_ENTRY(tma_loader, run)
(pl::Self self, const pl::Tile& tile, const pl::TensorMap* x_map, const pl::TensorMap* gate_map,
 const pl::TensorMap* up_map, pl::RingState& state, int m_rows) {
    if (pl::role_thread(self) != 0) return;
    const int row = tile.row * tile_m.at(self);
    const int column = tile.column * static_cast<int>(half_n.at(self));
    const int piece_rows = tile_m.at(self) / x_pieces.at(self);
    const int pieces = x_pieces.at(self) == 1 ? 1
                                              : min(static_cast<int>(x_pieces.at(self)),
                                                    (m_rows - row + piece_rows - 1) / piece_rows);
    const int stage_bytes = w_tile.bytes(self) + pieces * x.bytes(self);
    for (int step = 0; step < k_steps.at(self); ++step) {
        out.acquire(self, state);
        const auto barrier = out.expect(self, state, stage_bytes);
        const int k = step * tile_k.at(self);
        const auto w = out.address(self, w_tile, state);
        pl::bulk_load_2d(w, gate_map, k, column, barrier);
        pl::bulk_load_2d(w + gate.bytes(self), up_map, k, column, barrier);
        const auto to = out.address(self, x_tile, state);
        for (int piece = 0; piece < pieces; ++piece) {
            pl::bulk_load_2d(to + piece * x.bytes(self), x_map, k, row + piece * piece_rows,
                             barrier);
        }
        out.advance(self, state);
    }
}

}  // namespace tma_loader
