// Facts and expressions over facts.
//
// A fact is an empty object: its name and value are in its type, so that `fact.at(self)` is a
// constant in device code and the same text in the contract. Expressions over facts are objects of
// the same kind, so a size stands once: `bytes.at(self)` computes what the contract states.
#pragma once

#include <pipelink/abi.cuh>
#include <pipelink/text.cuh>
#include <type_traits>

namespace pipelink {

struct ExpressionTag {};

template <class T>
concept Expression = std::is_base_of_v<ExpressionTag, T>;

template <long long value>
struct Literal : ExpressionTag {
    __device__ __forceinline__ static constexpr long long at(Self) { return value; }
    static constexpr void write(Writer& out) { out.number(value); }
};

template <char... digits>
consteval long long parse_digits() {
    long long value = 0;
    ((value = digits == '\'' ? value : value * 10 + (digits - '0')), ...);
    return value;
}

inline namespace literals {
// 64_n is the number 64 in an expression.
template <char... digits>
consteval auto operator""_n() {
    return Literal<parse_digits<digits...>()>{};
}
}  // namespace literals

#define PIPELINK_BINARY(name, symbol, written)                      \
    template <class L, class R>                                     \
    struct name : ExpressionTag {                                   \
        __device__ __forceinline__ static long long at(Self self) { \
            return L::at(self) symbol R::at(self);                  \
        }                                                           \
        static constexpr void write(Writer& out) {                  \
            out.put('(');                                           \
            L::write(out);                                          \
            out.put(" " written " ");                               \
            R::write(out);                                          \
            out.put(')');                                           \
        }                                                           \
    };                                                              \
    template <Expression L, Expression R>                           \
    constexpr name<L, R> operator symbol(L, R) {                    \
        return {};                                                  \
    }

PIPELINK_BINARY(Add, +, "+")
PIPELINK_BINARY(Subtract, -, "-")
PIPELINK_BINARY(Multiply, *, "*")
PIPELINK_BINARY(Divide, /, "//")
PIPELINK_BINARY(Remainder, %, "%")
PIPELINK_BINARY(Equal, ==, "==")
PIPELINK_BINARY(NotEqual, !=, "!=")
PIPELINK_BINARY(Less, <, "<")
PIPELINK_BINARY(LessEqual, <=, "<=")
PIPELINK_BINARY(Greater, >, ">")
PIPELINK_BINARY(GreaterEqual, >=, ">=")
PIPELINK_BINARY(And, &&, "and")
PIPELINK_BINARY(Or, ||, "or")
#undef PIPELINK_BINARY

enum class FactKind { provides, chooses, imports, derives, extent };

struct FactTag {};

constexpr void write_values(Writer& out, const long long* values, std::size_t count) {
    out.key("values");
    out.put('[');
    for (std::size_t i = 0; i < count; ++i) {
        out.separate();
        out.number(values[i]);
    }
    out.put(']');
}

// What every fact is: a name in expressions, an item of the contract.
template <Name name_>
struct Fact : ExpressionTag, FactTag {
    static constexpr auto& name = name_.text;
    Place place;
    constexpr explicit Fact(Place at) : place(at) {}
    static constexpr void write(Writer& out) { out.put(name_.text); }
};

// A value as a template argument: `int` in constant expressions.
template <int value_>
struct Constant {
    static constexpr int value = value_;
    __host__ __device__ constexpr operator int() const { return value_; }
};

// Calls `body` with the one of `values` that `value` is, as a compile-time constant.
// The linker has checked that it is one of them.
template <long long first, long long... rest, class Body>
__device__ __forceinline__ void dispatch_over(long long value, Body&& body) {
    if constexpr (sizeof...(rest) == 0) {
        body(Constant<static_cast<int>(first)>{});
    } else if (value == first) {
        body(Constant<static_cast<int>(first)>{});
    } else {
        dispatch_over<rest...>(value, static_cast<Body&&>(body));
    }
}

// A constant of this owner's code.
template <Name name, long long value>
struct Provided : Fact<name> {
    using Fact<name>::Fact;
    static constexpr long long constant = value;
    __device__ __forceinline__ static constexpr long long at(Self) { return value; }
    static constexpr void describe(Writer& out) {
        out.field("kind", "provides");
        const long long values[] = {value};
        write_values(out, values, 1);
    }
};

// A value that the link takes from this owner's set: the manifest picks, the first is the default.
template <Name name, long long... values>
struct Chosen : Fact<name> {
    using Fact<name>::Fact;
    __device__ __forceinline__ static long long at(Self self) {
        return pipelink_bind(self, slot_of<name>);
    }
    template <class Body>
    __device__ __forceinline__ static void dispatch(Self self, Body&& body) {
        dispatch_over<values...>(at(self), static_cast<Body&&>(body));
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "chooses");
        const long long all[] = {values...};
        write_values(out, all, sizeof...(values));
    }
};

// A value that another owner, or the kernel, fixes. With `values`, only those are supported.
template <Name name, long long... values>
struct Imported : Fact<name> {
    using Fact<name>::Fact;
    __device__ __forceinline__ static long long at(Self self) {
        return pipelink_bind(self, slot_of<name>);
    }
    template <class Body>
    __device__ __forceinline__ static void dispatch(Self self, Body&& body) {
        static_assert(sizeof...(values) > 0, "dispatch needs the set of values that are supported");
        dispatch_over<values...>(at(self), static_cast<Body&&>(body));
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "imports");
        if constexpr (sizeof...(values) > 0) {
            const long long all[] = {values...};
            write_values(out, all, sizeof...(values));
        }
    }
};

// A value that follows from others, provided under a name of its own.
template <Name name, class Value>
struct Derived : Fact<name> {
    using Fact<name>::Fact;
    __device__ __forceinline__ static long long at(Self self) { return Value::at(self); }
    static constexpr void describe(Writer& out) {
        out.field("kind", "derives");
        out.key("value");
        out.put('"');
        Value::write(out);
        out.put('"');
    }
};

// A size known at launch only, read from the shape of a tensor; an int argument of entries.
template <Name name>
struct Extent : Fact<name> {
    using Fact<name>::Fact;
    using Argument = int;
    static constexpr void describe(Writer& out) { out.field("kind", "extent"); }
};

template <Name name, long long value>
constexpr auto provides(PIPELINK_HERE) {
    return Provided<name, value>(Place{file, line});
}
template <Name name, long long... values>
constexpr auto chooses(PIPELINK_HERE) {
    return Chosen<name, values...>(Place{file, line});
}
template <Name name, long long... values>
constexpr auto imports(PIPELINK_HERE) {
    return Imported<name, values...>(Place{file, line});
}
template <Name name, Expression Value>
constexpr auto derives(Value, PIPELINK_HERE) {
    return Derived<name, Value>(Place{file, line});
}
template <Name name>
constexpr auto extent(PIPELINK_HERE) {
    return Extent<name>(Place{file, line});
}

}  // namespace pipelink
