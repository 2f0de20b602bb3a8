// Ports: the typed tensor endpoints of a component, and what its code does through them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <pipelink/facts.cuh>

namespace pipelink {

using bf16 = __nv_bfloat16;
using f16 = __half;

// The contract's name of an element type.
template <class T>
inline constexpr const char* element_name = nullptr;
template <>
inline constexpr const char* element_name<bf16> = "bf16";
template <>
inline constexpr const char* element_name<f16> = "f16";
template <>
inline constexpr const char* element_name<float> = "f32";
template <>
inline constexpr const char* element_name<int> = "i32";

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
    static constexpr void write_elements(Writer& out) {
        bool first = true;
        ((first ? void() : out.put(" * "), Sizes::write(out), first = false), ...);
    }
};
template <class... Sizes>
constexpr Shape<Sizes...> shape(Sizes...) {
    return {};
}
// The part of a tensor that one bulk copy moves.
template <class... Sizes>
constexpr Shape<Sizes...> box(Sizes...) {
    return {};
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

struct PortTag {};

template <Name name_>
struct Port : PortTag {
    static constexpr auto& name = name_.text;
    Place place;
    constexpr explicit Port(Place at) : place(at) {}
};

constexpr void describe_port(Writer& out, const char* space, const char* direction,
                             const char* element) {
    out.field("space", space);
    out.field("direction", direction);
    if (element) out.field("element", element);
}

// A tensor in global memory, read by bulk copies of `Box` through a tensor map.
template <Name name, class Element, class Extents, class Box, int swizzle>
struct TensorMapIn : Port<name> {
    using Port<name>::Port;
    using Argument = const TensorMap*;
    static constexpr void describe(Writer& out) {
        describe_port(out, "global", "in", element_name<Element>);
        Extents::write(out, "shape");
        Box::write(out, "box");
        out.field("swizzle", swizzle);
    }
};
template <Name name, class Element, class Extents, class Box, int swizzle>
constexpr auto tensor_map_in(Extents, Box, Swizzle<swizzle>, PIPELINK_HERE) {
    return TensorMapIn<name, Element, Extents, Box, swizzle>(Place{file, line});
}

// A tensor in global memory, reached by its address.
template <Name name, class Element, class Extents, bool out_>
struct Array : Port<name> {
    using Port<name>::Port;
    using Argument = std::conditional_t<out_, Element*, const Element*>;
    static constexpr void describe(Writer& out) {
        describe_port(out, "global", out_ ? "out" : "in", element_name<Element>);
        Extents::write(out, "shape");
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

// Values in the registers of each thread, handed to the next step of the same role. `Count` is
// elements a thread; `layout` is CuTe's (thread, value) -> (row, column) map, its sizes over facts.
template <Name name, class Element, class Count, Name layout, bool out_>
struct Fragment : Port<name> {
    using Port<name>::Port;
    using Argument = std::conditional_t<out_, Element*, const Element*>;
    static constexpr void describe(Writer& out) {
        describe_port(out, "register", out_ ? "out" : "in", element_name<Element>);
        out.key("count");
        out.put('"');
        Count::write(out);
        out.put('"');
        out.field("layout", layout.text);
    }
};
template <Name name, class Element, Name layout, Expression Count>
constexpr auto fragment_out(Count, PIPELINK_HERE) {
    return Fragment<name, Element, Count, layout, true>(Place{file, line});
}
template <Name name, class Element, Name layout, Expression Count>
constexpr auto fragment_in(Count, PIPELINK_HERE) {
    return Fragment<name, Element, Count, layout, false>(Place{file, line});
}

// One tile of every stage of a ring.
template <Name name_, class Element, class Extents, int swizzle>
struct Part {
    static constexpr auto& name = name_.text;
    __device__ __forceinline__ static std::uint32_t bytes(Self self) {
        return static_cast<std::uint32_t>(Extents::elements(self) * sizeof(Element));
    }
    template <Name port>
    static constexpr std::uint64_t slot = part_slot<port, name_>();
    static constexpr void write_bytes(Writer& out) {
        Extents::write_elements(out);
        out.put(" * ");
        out.number(sizeof(Element));
    }
    static constexpr void describe(Writer& out) {
        out.separate();
        out.put('{');
        out.field("name", name_.text);
        out.field("element", element_name<Element>);
        Extents::write(out, "shape");
        out.field("swizzle", swizzle);
        out.put('}');
    }
};
template <Name name, class Element, class Extents, int swizzle>
constexpr auto part(Extents, Swizzle<swizzle>) {
    return Part<name, Element, Extents, swizzle>{};
}

// A ring of stages in shared memory. The link places each part as an array over the stages, and one
// full and one empty mbarrier a stage; the glue initialises the barriers with the declared
// arrivals.
template <Name name_, class Stages, class Arrivals, class... Parts>
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
    // The bytes that fill one stage.
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
        describe_port(out, "shared", direction, nullptr);
        out.key("stages");
        out.put('"');
        Stages::write(out);
        out.put('"');
        out.key("arrivals");
        out.put('"');
        Arrivals::write(out);
        out.put('"');
        out.key("parts");
        out.put('[');
        (Parts::describe(out), ...);
        out.put(']');
    }
};

// `ring_out<"name">()(stages, arrivals, parts...)`: the place is taken by the first call.
template <template <Name, class, class, class...> class Side, Name name>
struct RingMaker {
    Place place;
    template <Expression Stages, Expression Arrivals, class... Parts>
    constexpr auto operator()(Stages, Arrivals, Parts...) const {
        return Side<name, Stages, Arrivals, Parts...>(place);
    }
};

// The producer's side: filled by bulk copies; `arrivals` counts the arrive-expect calls a stage.
template <Name name, class Stages, class Arrivals, class... Parts>
struct RingOut : Ring<name, Stages, Arrivals, Parts...> {
    using Base = Ring<name, Stages, Arrivals, Parts...>;
    using Base::Base;
    // Waits until the consumers released the current stage.
    __device__ __forceinline__ static void acquire(Self self, const RingState& state) {
        pipelink_wait(self, Base::empty_slot, state.stage, Base::empty(self, state.stage),
                      state.phase ^ 1);
    }
    // Announces the bytes of the current stage; returns the mbarrier that its copies complete on.
    __device__ __forceinline__ static std::uint32_t expect(Self self, const RingState& state) {
        return expect(self, state, Base::bytes(self));
    }
    // Announces `bytes`, where less than a whole stage is copied: at a tensor's edge.
    __device__ __forceinline__ static std::uint32_t expect(Self self, const RingState& state,
                                                           std::uint32_t bytes) {
        const std::uint32_t barrier = Base::full(self, state.stage);
        pipelink_arrive_expect(self, Base::full_slot, state.stage, barrier, bytes);
        return barrier;
    }
    static constexpr void describe(Writer& out) {
        Base::describe_ring(out, "out");
        out.key("bytes");
        out.put('"');
        bool first = true;
        ((first ? void() : out.put(" + "), Parts::write_bytes(out), first = false), ...);
        out.put('"');
    }
};
template <Name name>
constexpr auto ring_out(PIPELINK_HERE) {
    return RingMaker<RingOut, name>{Place{file, line}};
}

// The consumer's side: `arrivals` counts the releases that free a stage.
template <Name name, class Stages, class Arrivals, class... Parts>
struct RingIn : Ring<name, Stages, Arrivals, Parts...> {
    using Base = Ring<name, Stages, Arrivals, Parts...>;
    using Base::Base;
    // Waits until the current stage is filled.
    __device__ __forceinline__ static void wait(Self self, const RingState& state) {
        pipelink_wait(self, Base::full_slot, state.stage, Base::full(self, state.stage),
                      state.phase);
    }
    // One of the releases that free `stage`.
    __device__ __forceinline__ static void release(Self self, unsigned stage) {
        pipelink_arrive(self, Base::empty_slot, stage, Base::empty(self, stage));
    }
    static constexpr void describe(Writer& out) { Base::describe_ring(out, "in"); }
};
template <Name name>
constexpr auto ring_in(PIPELINK_HERE) {
    return RingMaker<RingIn, name>{Place{file, line}};
}

}  // namespace pipelink
