// Ports: the typed tensor endpoints of a component, and what its code does through them.
#pragma once

#include <pipelink/claims.cuh>
#include <pipelink/elements.cuh>
#include <pipelink/ptx.cuh>

namespace pipelink {
inline namespace format2 {

// A shape, row-major, outermost first: expressions over facts, or extents.
template <class... Sizes>
struct Shape {
    static constexpr void write(Writer& out, const char* key) {
        out.key(key);
        out.put('[');
        (write_size<Sizes>(out), ...);
        out.put(']');
    }
    template <class Size>
    static constexpr void write_size(Writer& out) {
        out.separate();
        out.put('"');
        Size::write(out);
        out.put('"');
    }
    __device__ __forceinline__ static long long elements(Self self) {
        return (Sizes::at(self) * ... * 1);
    }
};
template <ExpressionOrNumber... Sizes>
constexpr auto shape(Sizes...) {
    return Shape<expression_of<Sizes>...>{};
}
// The part of a tensor that one bulk copy moves.
template <ExpressionOrNumber... Sizes>
constexpr auto box(Sizes...) {
    return Shape<expression_of<Sizes>...>{};
}

// CuTe's Swizzle<B,4,3> on bytes: a row of `bytes` bytes, 16-byte chunks exchanged by row.
template <int bytes_>
struct Swizzle {
    static constexpr int bytes = bytes_;
};
inline constexpr Swizzle<0> no_swizzle{};
inline constexpr Swizzle<32> swizzle_32{};
inline constexpr Swizzle<64> swizzle_64{};
inline constexpr Swizzle<128> swizzle_128{};

// How much of one side of a tensor a kernel reaches.
template <Name along, class Step, bool clipped_>
struct Cover {
    // Nothing past the tensor's end is touched: the code compares before it reads or writes.
    constexpr auto clipped() const { return Cover<along, Step, true>{}; }
    static constexpr void write(Writer& out) {
        out.separate();
        out.put('{');
        out.field("along", along.text);
        write_expression<Step>(out, "step");
        if constexpr (clipped_) {
            out.key("clipped");
            out.truth(true);
        }
        out.put('}');
    }
};
// `step` elements, from row `tile.row * step` on.
template <ExpressionOrNumber Step>
constexpr auto by_row(Step) {
    return Cover<"row", expression_of<Step>, false>{};
}
// `step` elements, from column `tile.column * step` on.
template <ExpressionOrNumber Step>
constexpr auto by_column(Step) {
    return Cover<"column", expression_of<Step>, false>{};
}
// The rows from `tile.first` to `tile.end`, `step` at most: of a schedule whose rows are in groups.
template <ExpressionOrNumber Step>
constexpr auto by_group(Step) {
    return Cover<"group", expression_of<Step>, true>{};
}
// `size` elements, for each tile.
template <ExpressionOrNumber Size>
constexpr auto whole(Size) {
    return Cover<"whole", expression_of<Size>, false>{};
}
template <class... Covers>
constexpr void write_covers(Writer& out) {
    if constexpr (sizeof...(Covers) > 0) {
        out.key("covers");
        out.put('[');
        (Covers::write(out), ...);
        out.put(']');
    }
}

// What holds of the values of an integer array when the kernel starts: a debug launch checks it.
template <Name what, class... Sizes>
struct Holds {
    static constexpr void write(Writer& out) {
        out.separate();
        out.put('{');
        out.field("what", what.text);
        if constexpr (sizeof...(Sizes) > 0) Shape<Sizes...>::write(out, "sizes");
        out.put('}');
    }
};
template <class... Held>
constexpr void write_holds(Writer& out) {
    if constexpr (sizeof...(Held) > 0) {
        out.key("holds");
        out.put('[');
        (Held::write(out), ...);
        out.put(']');
    }
}

struct PortTag {};

template <Name name_>
struct Port : PortTag {
    static constexpr auto& name = name_.text;
    Place place;
    constexpr explicit Port(Place at) : place(at) {}
};

template <Name element>
constexpr void describe_port(Writer& out, const char* space, const char* direction) {
    out.field("space", space);
    out.field("direction", direction);
    if constexpr (sizeof(element.text) > 1) out.field("element", element.text);
}

// A tensor in global memory, read by bulk copies of `Box` through a tensor map.
template <Name name, class Element, class Extents, class Box, int swizzle, class... Covers>
struct TensorMapIn : Port<name> {
    using Port<name>::Port;
    using Argument = const TensorMap*;
    // The bytes that one bulk copy delivers, whatever of the box passes the tensor's end.
    __device__ __forceinline__ static std::uint32_t bytes(Self self) {
        return static_cast<std::uint32_t>(Box::elements(self) * sizeof(Element));
    }
    template <class... Sides>
    constexpr auto covers(Sides...) const {
        return TensorMapIn<name, Element, Extents, Box, swizzle, Sides...>(this->place);
    }
    static constexpr void describe(Writer& out) {
        describe_port<element_name<Element>>(out, "global", "in");
        Extents::write(out, "shape");
        Box::write(out, "box");
        out.field("swizzle", swizzle);
        write_covers<Covers...>(out);
    }
};
template <Name name, class Element, class Extents, class Box, int swizzle>
constexpr auto tensor_map_in(Extents, Box, Swizzle<swizzle>, PIPELINK_HERE) {
    return TensorMapIn<name, Element, Extents, Box, swizzle>(Place{file, line});
}

template <class...>
struct Items {};

// A tensor in global memory, reached by its address.
template <Name name, class Element, class Extents, bool out_, bool adds_ = false,
          class Covers = Items<>, class Held = Items<>>
struct Array;
template <Name name, class Element, class Extents, bool out_, bool adds_, class... Covers,
          class... Held>
struct Array<name, Element, Extents, out_, adds_, Items<Covers...>, Items<Held...>> : Port<name> {
    using Port<name>::Port;
    using Argument = std::conditional_t<out_, Element*, const Element*>;
    template <class... Sides>
    constexpr auto covers(Sides...) const {
        return Array<name, Element, Extents, out_, adds_, Items<Sides...>, Items<Held...>>(
            this->place);
    }
    // The code adds to what is there, in atomic operations: the caller's values count.
    constexpr auto adds() const {
        static_assert(out_, "what is added to is written: array_out");
        return Array<name, Element, Extents, out_, true, Items<Covers...>, Items<Held...>>(
            this->place);
    }
    // Every value is at least 0 and less than the number of elements of a shape.
    template <class... Sizes>
    constexpr auto below(Shape<Sizes...>) const {
        static_assert(sizeof...(Sizes) > 0, "below takes a shape of at least one size");
        return holding<Holds<"below", Sizes...>>();
    }
    // There are as many as elements of a shape: every launch checks it.
    template <class... Sizes>
    constexpr auto count(Shape<Sizes...>) const {
        static_assert(sizeof...(Sizes) > 0, "count takes a shape of at least one size");
        return holding<Holds<"count", Sizes...>>();
    }
    // No value stands twice.
    constexpr auto distinct() const { return holding<Holds<"distinct">>(); }
    // The first value is 0, none is less than the one before, the last is the number of elements of
    // a shape.
    template <class... Sizes>
    constexpr auto ascending(Shape<Sizes...>) const {
        static_assert(sizeof...(Sizes) > 0, "ascending takes a shape of at least one size");
        return holding<Holds<"ascending", Sizes...>>();
    }
    static constexpr void describe(Writer& out) {
        describe_port<element_name<Element>>(out, "global", out_ ? "out" : "in");
        Extents::write(out, "shape");
        write_covers<Covers...>(out);
        if constexpr (adds_) {
            out.key("adds");
            out.truth(true);
        }
        write_holds<Held...>(out);
    }

  private:
    template <class More>
    constexpr auto holding() const {
        static_assert(std::is_integral_v<Element>,
                      "below, distinct, ascending and count are for arrays of integers");
        static_assert(!out_, "below, distinct, ascending and count are for arrays that are read");
        return Array<name, Element, Extents, out_, adds_, Items<Covers...>, Items<Held..., More>>(
            this->place);
    }
};
template <Name name, class Element, class Extents>
constexpr auto array_in(Extents, PIPELINK_HERE) {
    return Array<name, Element, Extents, false>(Place{file, line});
}
template <Name name, class Element, class Extents>
constexpr auto array_out(Extents, PIPELINK_HERE) {
    return Array<name, Element, Extents, true>(Place{file, line});
}

// Values in the registers of each thread, handed to the next step of the same role: together a tile
// of `Extents`. `layout` is CuTe's (thread, value) -> (row, column) map, its sizes over facts; a
// thread has as many elements as its value mode.
template <Name name, class Element, class Extents, Name layout, bool out_>
struct Fragment : Port<name> {
    using Port<name>::Port;
    using Argument = std::conditional_t<out_, Element*, const Element*>;
    static constexpr void describe(Writer& out) {
        describe_port<element_name<Element>>(out, "register", out_ ? "out" : "in");
        Extents::write(out, "shape");
        out.field("layout", layout.text);
    }
};
template <Name name, class Element, Name layout, class... Sizes>
constexpr auto fragment_out(Shape<Sizes...>, PIPELINK_HERE) {
    return Fragment<name, Element, Shape<Sizes...>, layout, true>(Place{file, line});
}
template <Name name, class Element, Name layout, class... Sizes>
constexpr auto fragment_in(Shape<Sizes...>, PIPELINK_HERE) {
    return Fragment<name, Element, Shape<Sizes...>, layout, false>(Place{file, line});
}

// `Count` boxes of the global port `port`, which together are a part of a stage.
template <Name port, class Count>
struct Copy {
    static constexpr void write(Writer& out) {
        out.separate();
        out.put('{');
        out.field("port", port.text);
        write_expression<Count>(out, "count");
        out.put('}');
    }
};

// One tile of every stage of a ring.
template <Name name_, class Element, class Extents, int swizzle, Name layout_, Name edge,
          class... Copies>
struct Part {
    static constexpr auto& name = name_.text;
    __device__ __forceinline__ static std::uint32_t bytes(Self self) {
        return static_cast<std::uint32_t>(Extents::elements(self) * sizeof(Element));
    }
    template <Name port>
    static constexpr std::uint64_t slot = part_slot<port, name_>();

    // Bulk copies deliver it: `count` boxes of this port; and of another one, if it is said twice.
    template <Name port, class E, class S, class B, int w, class... C, ExpressionOrNumber Count>
    constexpr auto filled_by(const TensorMapIn<port, E, S, B, w, C...>&, Count) const {
        return Part<name_, Element, Extents, swizzle, layout_, edge, Copies...,
                    Copy<port, expression_of<Count>>>{};
    }
    // Where the tile passes the tensor's end: a producer leaves zeros or whatever was there, a
    // consumer needs zeros or nothing.
    constexpr auto edge_zero() const {
        return Part<name_, Element, Extents, swizzle, layout_, "zero", Copies...>{};
    }
    constexpr auto edge_undefined() const {
        return Part<name_, Element, Extents, swizzle, layout_, "undefined", Copies...>{};
    }
    // CuTe's layout of the elements of a stage, if they are not row-major.
    template <Name text>
    constexpr auto layout() const {
        return Part<name_, Element, Extents, swizzle, text, edge, Copies...>{};
    }
    static constexpr void describe(Writer& out) {
        out.separate();
        out.put('{');
        out.field("name", name_.text);
        out.field("element", element_name<Element>.text);
        Extents::write(out, "shape");
        out.field("swizzle", swizzle);
        if constexpr (sizeof(layout_.text) > 1) out.field("layout", layout_.text);
        if constexpr (sizeof(edge.text) > 1) out.field("edge", edge.text);
        if constexpr (sizeof...(Copies) > 0) {
            out.key("copies");
            out.put('[');
            (Copies::write(out), ...);
            out.put(']');
        }
        out.put('}');
    }
};
template <Name name, class Element, class Extents, int swizzle>
constexpr auto part(Extents, Swizzle<swizzle>) {
    return Part<name, Element, Extents, swizzle, "", "">{};
}

// Which of the two proxies of memory an access goes through (PTX ISA, "Proxies"): ordinary loads
// and stores, ldmatrix among them, or bulk copies and wgmma.
struct GenericProxy {
    static constexpr const char* name = "generic";
};
struct AsyncProxy {
    static constexpr const char* name = "async";
};
inline constexpr GenericProxy generic_proxy{};
inline constexpr AsyncProxy async_proxy{};

// One thread announces the bytes of a stage, and bulk copies deliver them.
struct ByCopies {
    static constexpr const char* name = "copies";
};
inline constexpr ByCopies by_copies{};

// Each thread of the role copies asynchronously (cp.async), and arrives when its own copies have
// come.
struct EachThreadAsync {
    static constexpr const char* name = "each_thread_async";
};
inline constexpr EachThreadAsync each_thread_async{};

// A ring of stages in shared memory. The link places each part as an array over the stages, and one
// full and one empty mbarrier a stage; the glue initialises the barriers for those who arrive.
template <Name name_, class Stages, class By, class Proxy, class... Parts>
struct Ring : Port<name_> {
    using Port<name_>::Port;
    using Argument = RingState&;
    static constexpr std::uint64_t full_slot = part_slot<name_, "full">();
    static constexpr std::uint64_t empty_slot = part_slot<name_, "empty">();

    // The shared address of `part` in the current stage.
    template <class PartType>
    __device__ __forceinline__ static std::uint32_t address(Self self, PartType,
                                                            const RingState& state) {
        return pipelink_region(self, PartType::template slot<name_>,
                               state.stage * PartType::bytes(self));
    }
    // The same as a pointer, for ordinary loads and stores.
    template <class T, class PartType>
    __device__ __forceinline__ static T* pointer(Self self, PartType tile, const RingState& state) {
        return shared_pointer<T>(address(self, tile, state));
    }
    // The bytes of one stage.
    __device__ __forceinline__ static std::uint32_t bytes(Self self) {
        return (Parts::bytes(self) + ...);
    }
    __device__ __forceinline__ static std::uint32_t full(Self self, unsigned stage) {
        return pipelink_region(self, full_slot, stage * 8);
    }
    __device__ __forceinline__ static std::uint32_t empty(Self self, unsigned stage) {
        return pipelink_region(self, empty_slot, stage * 8);
    }
    __device__ __forceinline__ static void advance(Self self, RingState& state) {
        if (++state.stage == Stages::at(self)) {
            state.stage = 0;
            state.phase ^= 1;
        }
    }
    static constexpr void describe_ring(Writer& out, const char* direction) {
        describe_port<"">(out, "shared", direction);
        write_expression<Stages>(out, "stages");
        out.field("by", By::name);
        out.field("proxy", Proxy::name);
        out.key("parts");
        out.put('[');
        (Parts::describe(out), ...);
        out.put(']');
    }
};

// A producer's side that bulk copies fill.
template <Name name, class Stages, class By, class Proxy, class... Parts>
struct RingOut : Ring<name, Stages, By, Proxy, Parts...> {
    using Base = Ring<name, Stages, By, Proxy, Parts...>;
    using Base::Base;
    // Waits until the consumers released the current stage.
    __device__ __forceinline__ static void acquire(Self self, const RingState& state) {
        pipelink_wait(self, Base::empty_slot, state.stage, Base::empty(self, state.stage),
                      state.phase ^ 1);
    }
    // Announces the bytes of the current stage, in one thread; returns the mbarrier that its copies
    // complete on.
    __device__ __forceinline__ static std::uint32_t expect(Self self, const RingState& state) {
        static_assert(std::is_same_v<By, ByCopies>,
                      "stores fill this ring: hand a stage over with commit");
        return expect(self, state, Base::bytes(self));
    }
    // Announces `bytes`, where less than a whole stage is copied: at a tensor's edge.
    __device__ __forceinline__ static std::uint32_t expect(Self self, const RingState& state,
                                                           std::uint32_t bytes) {
        static_assert(std::is_same_v<By, ByCopies>,
                      "stores fill this ring: hand a stage over with commit");
        const std::uint32_t barrier = Base::full(self, state.stage);
        pipelink_arrive_expect(self, Base::full_slot, state.stage, barrier, bytes);
        return barrier;
    }
    // The current stage is written, by stores of this thread: every thread of the role calls it.
    // The link decides whether the consumer's proxy needs a fence.
    __device__ __forceinline__ static void commit(Self self, const RingState& state) {
        static_assert(Arriver<By>,
                      "copies fill this ring: announce its bytes with expect, or commit_async");
        static_assert(!std::is_same_v<By, EachWarpgroup>,
                      "threads of a warpgroup do not wait for one another: let each_warp arrive");
        if (pipelink_bind(self, part_slot<name, "fence">())) fence_async_proxy();
        if constexpr (std::is_same_v<By, EachWarp>) __syncwarp();
        if constexpr (Arriver<By>) {
            if (!By::elected(self)) return;
            pipelink_arrive(self, Base::full_slot, state.stage, Base::full(self, state.stage));
        }
    }
    // This thread has started its copies into the current stage, by cp.async: every thread of the
    // role calls it, and the hardware arrives for each when they have come. Who waits has the
    // fence.
    __device__ __forceinline__ static void commit_async(Self self, const RingState& state) {
        static_assert(std::is_same_v<By, EachThreadAsync>,
                      "this ring is not filled by each_thread_async");
        pipelink_arrive_async(self, Base::full_slot, state.stage, Base::full(self, state.stage));
    }
    static constexpr void describe(Writer& out) { Base::describe_ring(out, "out"); }
};

// The consumer's side.
template <Name name, class Stages, class By, class Proxy, class... Parts>
struct RingIn : Ring<name, Stages, By, Proxy, Parts...> {
    using Base = Ring<name, Stages, By, Proxy, Parts...>;
    using Base::Base;
    // Whether the link may ask for a fence after the wait: for what threads copied asynchronously.
    static constexpr bool fences = std::is_same_v<Proxy, AsyncProxy>;
    // Waits until the current stage is filled.
    __device__ __forceinline__ static void wait(Self self, const RingState& state) {
        pipelink_wait(self, Base::full_slot, state.stage, Base::full(self, state.stage),
                      state.phase);
        if constexpr (fences) {
            if (pipelink_bind(self, part_slot<name, "fence">())) fence_async_proxy();
        }
    }
    // `stage` is read: every thread of the role calls it, those who arrive free the stage.
    __device__ __forceinline__ static void release(Self self, unsigned stage) {
        constexpr bool loads = std::is_same_v<Proxy, GenericProxy>;
        if constexpr (loads && std::is_same_v<By, EachWarp>) __syncwarp();
        if (!By::elected(self)) return;
        pipelink_arrive(self, Base::empty_slot, stage, Base::empty(self, stage));
    }
    static constexpr void describe(Writer& out) {
        Base::describe_ring(out, "in");
        if constexpr (fences) {
            out.key("fences");
            out.truth(true);
        }
    }
};

// `ring_out<"name">()(stages, by_copies, parts...)`: the place is taken by the first call.
template <Name name>
struct RingOutMaker {
    Place place;
    template <ExpressionOrNumber Stages, class... Parts>
    constexpr auto operator()(Stages, ByCopies, Parts...) const {
        return RingOut<name, expression_of<Stages>, ByCopies, AsyncProxy, Parts...>(place);
    }
    template <ExpressionOrNumber Stages, class... Parts>
    constexpr auto operator()(Stages, EachThreadAsync, Parts...) const {
        return RingOut<name, expression_of<Stages>, EachThreadAsync, GenericProxy, Parts...>(place);
    }
    template <ExpressionOrNumber Stages, Arriver By, class... Parts>
    constexpr auto operator()(Stages, By, Parts...) const {
        return RingOut<name, expression_of<Stages>, By, GenericProxy, Parts...>(place);
    }
};
template <Name name>
constexpr auto ring_out(PIPELINK_HERE) {
    return RingOutMaker<name>{Place{file, line}};
}
// `ring_in<"name">()(stages, each_warpgroup, async_proxy, parts...)`
template <Name name>
struct RingInMaker {
    Place place;
    template <ExpressionOrNumber Stages, Arriver By, class Proxy, class... Parts>
    constexpr auto operator()(Stages, By, Proxy, Parts...) const {
        return RingIn<name, expression_of<Stages>, By, Proxy, Parts...>(place);
    }
};
template <Name name>
constexpr auto ring_in(PIPELINK_HERE) {
    return RingInMaker<name>{Place{file, line}};
}

// A tile in shared memory that stands still while a step runs: the glue has it filled before the
// step that takes it, hands it on after the step that makes it, and converts it on the way where
// the two ends lay it out differently. `Proxy` is how the step reads or writes it.
template <Name name_, bool out_, class Proxy, class... Parts>
struct SharedTile : Port<name_> {
    using Port<name_>::Port;
    using Argument = const RingState&;
    // The shared address of `part`; the same as a pointer.
    template <class PartType>
    __device__ __forceinline__ static std::uint32_t address(Self self, PartType,
                                                            const RingState& state) {
        return pipelink_region(self, PartType::template slot<name_>,
                               state.stage * PartType::bytes(self));
    }
    template <class T, class PartType>
    __device__ __forceinline__ static T* pointer(Self self, PartType tile, const RingState& state) {
        return shared_pointer<T>(address(self, tile, state));
    }
    static constexpr void describe(Writer& out) {
        describe_port<"">(out, "shared", out_ ? "out" : "in");
        out.field("by", "step");
        out.field("proxy", Proxy::name);
        out.key("parts");
        out.put('[');
        (Parts::describe(out), ...);
        out.put(']');
    }
};
// `tile_in<"x">()(async_proxy, parts...)`
template <Name name, bool out>
struct SharedTileMaker {
    Place place;
    template <class Proxy, class... Parts>
    constexpr auto operator()(Proxy, Parts...) const {
        return SharedTile<name, out, Proxy, Parts...>(place);
    }
};
template <Name name>
constexpr auto tile_out(PIPELINK_HERE) {
    return SharedTileMaker<name, true>{Place{file, line}};
}
template <Name name>
constexpr auto tile_in(PIPELINK_HERE) {
    return SharedTileMaker<name, false>{Place{file, line}};
}

// What a producer promises of the data of a port, and what a consumer needs of them.
struct PromiseTag {};
template <Name name_, class Port>
struct Promise : PromiseTag {
    static constexpr auto& name = name_.text;
    const char* side;
    const char* why;
    Place place;
    constexpr Promise(const char* side_, const char* reason, Place at)
        : side(side_), why(reason), place(at) {}
    constexpr void describe(Writer& out) const {
        out.field("port", Port::name);
        out.field("side", side);
        out.field("why", why);
    }
};
template <Name name, class Port>
constexpr auto promises(Port, const char* why, PIPELINK_HERE) {
    return Promise<name, Port>("promises", why, Place{file, line});
}
template <Name name, class Port>
constexpr auto needs(Port, const char* why, PIPELINK_HERE) {
    return Promise<name, Port>("needs", why, Place{file, line});
}

}  // namespace format2
}  // namespace pipelink
