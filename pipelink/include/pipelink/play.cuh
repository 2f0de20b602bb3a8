// What an entry does with rings, in order: the linker plays all entries of a kernel together and
// finds a deadlock, or a stage that is overwritten, before a GPU sees the kernel.
#pragma once

#include <pipelink/ports.cuh>

namespace pipelink {
inline namespace format2 {

struct OperationTag {};
template <class T>
concept Played = std::is_base_of_v<OperationTag, T>;

template <Name kind, class Port>
struct RingOperation : OperationTag {
    static constexpr void write(Writer& out) {
        out.separate();
        out.put('{');
        out.field("do", kind.text);
        out.field("on", Port::name);
        out.put('}');
    }
};
template <class... Operations>
struct Sequence : OperationTag {
    static constexpr void write(Writer& out) { (Operations::write(out), ...); }
};
template <Name kind, class Count, Name name, class... Operations>
struct Block : OperationTag {
    static constexpr void write(Writer& out) {
        out.separate();
        out.put('{');
        out.field("do", kind.text);
        if constexpr (!std::is_void_v<Count>) write_expression<Count>(out, "count");
        if constexpr (sizeof(name.text) > 1) out.field("name", name.text);
        out.key("body");
        out.put('[');
        (Operations::write(out), ...);
        out.put("]}");
    }
};

// A producer waits for a free stage, and hands it over.
template <class Port>
constexpr RingOperation<"acquire", Port> acquire(Port) {
    return {};
}
template <class Port>
constexpr RingOperation<"commit", Port> commit(Port) {
    return {};
}
// A consumer waits for a filled stage, and frees the oldest that it has.
template <class Port>
constexpr RingOperation<"wait", Port> wait(Port) {
    return {};
}
template <class Port>
constexpr RingOperation<"release", Port> release(Port) {
    return {};
}
template <class Port>
constexpr auto fill(Port) {
    return Sequence<RingOperation<"acquire", Port>, RingOperation<"commit", Port>>{};
}
template <class Port>
constexpr auto drain(Port) {
    return Sequence<RingOperation<"wait", Port>, RingOperation<"release", Port>>{};
}
template <ExpressionOrNumber Count, Played... Operations>
constexpr auto repeat(Count, Operations...) {
    return Block<"repeat", expression_of<Count>, "", Operations...>{};
}
// As often as only the run knows: the same name is the same count, for all entries, in one tile.
template <Name name, Played... Operations>
constexpr auto repeat(Operations...) {
    return Block<"repeat", void, name, Operations...>{};
}
// Or not at all, as the run decides: the same name is the same decision.
template <Name name, Played... Operations>
constexpr auto maybe(Operations...) {
    return Block<"maybe", void, name, Operations...>{};
}

}  // namespace format2
}  // namespace pipelink
