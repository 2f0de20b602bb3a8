// Facts and expressions over facts.
//
// A fact is an empty object: its name and value are in its type, so that `fact.at(self)` is a
// constant in device code and the same text in the contract. Expressions over facts are objects of
// the same kind, so a size stands once: `bytes.at(self)` computes what the contract states.
//
// Values are integers, truths, texts, element types and layouts. A text is bound by its hash: code
// compares and dispatches, it never spells.
#pragma once

#include <pipelink/abi.cuh>
#include <pipelink/elements.cuh>
#include <pipelink/text.cuh>
#include <type_traits>

namespace pipelink {
inline namespace format2 {

struct ExpressionTag {};

template <class T>
concept Expression = std::is_base_of_v<ExpressionTag, T>;

template <long long value>
struct Literal : ExpressionTag {
    __device__ __forceinline__ static constexpr long long at(Self) { return value; }
    static constexpr void write(Writer& out) { out.number(value); }
};

// What is written with quotes in a contract, and bound by its hash.
template <Name text_>
struct Quoted : ExpressionTag {
    static constexpr auto& text = text_.text;
    static constexpr long long bound = static_cast<long long>(slot_of<text_>);
    __device__ __forceinline__ static constexpr long long at(Self) { return bound; }
    static constexpr void write(Writer& out) {
        out.put('\'');
        out.escape(text_.text);
        out.put('\'');
    }
};
template <Name text>
struct Text : Quoted<text> {};
// A CuTe layout as a value: pl::layout<"(64,8):(8,1)">.
template <Name text>
struct Layout : Quoted<text> {};
template <Name text>
inline constexpr Layout<text> layout{};
// An element type as a value: pl::element<pl::bf16>; `type` is the C++ type.
template <class T>
struct Element : Quoted<element_name<T>> {
    using type = T;
};
template <class T>
inline constexpr Element<T> element{};

// The type of an import that supports every value: pl::imports<"causal", pl::any_bool>().
struct AnyBool {};
struct AnyText {};
struct AnyElement {};
struct AnyLayout {};
inline constexpr AnyBool any_bool{};
inline constexpr AnyText any_text{};
inline constexpr AnyElement any_element{};
inline constexpr AnyLayout any_layout{};

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
// "fast"_t is a text, as a value of a fact and in an expression.
template <Name text>
consteval auto operator""_t() {
    return Text<text>{};
}
}  // namespace literals

// A number without _n is taken where an expression belongs, so that it is refused in a sentence.
#define PIPELINK_NO_NUMBER(T) \
    static_assert(Expression<T>, "write numbers of expressions with _n: 2_n is the number 2")

template <class T>
concept Number = std::is_arithmetic_v<T>;
template <class T>
concept ExpressionOrNumber = Expression<T> || Number<T>;

template <class T>
struct ExpressionOf {
    PIPELINK_NO_NUMBER(T);
    using type = Literal<1>;
};
template <Expression T>
struct ExpressionOf<T> {
    using type = T;
};
template <ExpressionOrNumber T>
using expression_of = typename ExpressionOf<T>::type;

// How a value is written in a contract, what it is bound to, and what code gets of it.
template <class T>
struct ValueKind {
    static constexpr const char* type = "int";
    static constexpr long long bound(T value) { return value; }
    static constexpr void write(Writer& out, T value) { out.number(value); }
};
template <>
struct ValueKind<bool> {
    static constexpr const char* type = "bool";
    static constexpr long long bound(bool value) { return value; }
    static constexpr void write(Writer& out, bool value) { out.truth(value); }
};
template <class T>
struct QuotedKind {
    static constexpr long long bound(T) { return T::bound; }
    static constexpr void write(Writer& out, T) { out.quote(T::text); }
};
template <Name text>
struct ValueKind<Text<text>> : QuotedKind<Text<text>> {
    static constexpr const char* type = "text";
};
template <Name text>
struct ValueKind<Layout<text>> : QuotedKind<Layout<text>> {
    static constexpr const char* type = "layout";
};
template <class T>
struct ValueKind<Element<T>> : QuotedKind<Element<T>> {
    static constexpr const char* type = "element";
};
#define PIPELINK_ANY(any, name)                   \
    template <>                                   \
    struct ValueKind<any> {                       \
        static constexpr const char* type = name; \
    };
PIPELINK_ANY(AnyBool, "bool")
PIPELINK_ANY(AnyText, "text")
PIPELINK_ANY(AnyElement, "element")
PIPELINK_ANY(AnyLayout, "layout")
#undef PIPELINK_ANY

template <class T>
inline constexpr bool is_any = std::is_same_v<T, AnyBool> || std::is_same_v<T, AnyText> ||
                               std::is_same_v<T, AnyElement> || std::is_same_v<T, AnyLayout>;

template <auto value>
using kind_of = ValueKind<std::remove_const_t<decltype(value)>>;
template <auto value>
inline constexpr long long bound_of = kind_of<value>::bound(value);

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
    }                                                               \
    template <Expression L, Number R>                               \
    constexpr Literal<1> operator symbol(L, R) {                    \
        PIPELINK_NO_NUMBER(R);                                      \
        return {};                                                  \
    }                                                               \
    template <Number L, Expression R>                               \
    constexpr Literal<1> operator symbol(L, R) {                    \
        PIPELINK_NO_NUMBER(L);                                      \
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
#undef PIPELINK_NO_NUMBER

template <class Value>
struct Not : ExpressionTag {
    __device__ __forceinline__ static long long at(Self self) { return !Value::at(self); }
    static constexpr void write(Writer& out) {
        out.put("(not ");
        Value::write(out);
        out.put(')');
    }
};
template <Expression Value>
constexpr Not<Value> operator!(Value) {
    return {};
}

template <class L, class R, bool least>
struct Extreme : ExpressionTag {
    __device__ __forceinline__ static long long at(Self self) {
        const long long left = L::at(self), right = R::at(self);
        return (left < right) == least ? left : right;
    }
    static constexpr void write(Writer& out) {
        out.put(least ? "min(" : "max(");
        L::write(out);
        out.put(", ");
        R::write(out);
        out.put(')');
    }
};
template <ExpressionOrNumber L, ExpressionOrNumber R>
    requires(Expression<L> || Expression<R>)
constexpr auto min(L, R) {
    return Extreme<expression_of<L>, expression_of<R>, true>{};
}
template <ExpressionOrNumber L, ExpressionOrNumber R>
    requires(Expression<L> || Expression<R>)
constexpr auto max(L, R) {
    return Extreme<expression_of<L>, expression_of<R>, false>{};
}

template <class Condition, class Then, class Otherwise>
struct Select : ExpressionTag {
    __device__ __forceinline__ static long long at(Self self) {
        return Condition::at(self) ? Then::at(self) : Otherwise::at(self);
    }
    static constexpr void write(Writer& out) {
        out.put('(');
        Then::write(out);
        out.put(" if ");
        Condition::write(out);
        out.put(" else ");
        Otherwise::write(out);
        out.put(')');
    }
};
// select(causal, half, whole): the second where the first holds, else the third.
template <Expression Condition, ExpressionOrNumber Then, ExpressionOrNumber Otherwise>
constexpr auto select(Condition, Then, Otherwise) {
    return Select<Condition, expression_of<Then>, expression_of<Otherwise>>{};
}
// ceil_div(m, tile): how many tiles it takes to cover m.
template <ExpressionOrNumber Size, ExpressionOrNumber Step>
    requires(Expression<Size> || Expression<Step>)
constexpr auto ceil_div(Size, Step) {
    using By = expression_of<Step>;
    return Divide<Subtract<Add<expression_of<Size>, By>, Literal<1>>, By>{};
}

template <Expression Value>
constexpr void write_expression(Writer& out, const char* key) {
    out.key(key);
    out.put('"');
    Value::write(out);
    out.put('"');
}

struct FactTag {};

template <auto... values>
constexpr void write_values(Writer& out) {
    out.key("values");
    out.put('[');
    ((out.separate(), kind_of<values>::write(out, values)), ...);
    out.put(']');
}
template <auto first, auto... rest>
constexpr void write_type(Writer& out) {
    static_assert(
        (std::is_same_v<decltype(kind_of<first>::type), decltype(kind_of<rest>::type)> && ...));
    out.field("type", kind_of<first>::type);
}

// What every fact is: a name in expressions, an item of the contract.
template <Name name_>
struct Fact : ExpressionTag, FactTag {
    static constexpr auto& name = name_.text;
    Place place;
    constexpr explicit Fact(Place at) : place(at) {}
    static constexpr void write(Writer& out) { out.put(name_.text); }
};

// A value as a template argument: `int` or `bool` in constant expressions.
template <auto value_>
struct Constant {
    static constexpr auto value = value_;
    __host__ __device__ constexpr operator decltype(value_)() const { return value_; }
};

// What `dispatch` hands to its body: a number as a Constant, a text or type as itself.
template <auto value>
__device__ __forceinline__ constexpr auto constant_of() {
    using T = std::remove_const_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>) {
        return Constant<value>{};
    } else if constexpr (std::is_integral_v<T>) {
        return Constant<static_cast<int>(value)>{};
    } else {
        return value;
    }
}

// Calls `body` with the one of `values` that `bound` stands for, as a compile-time constant.
// The linker has checked that it is one of them.
template <auto first, auto... rest, class Body>
__device__ __forceinline__ void dispatch_over(long long bound, Body&& body) {
    if constexpr (sizeof...(rest) == 0) {
        body(constant_of<first>());
    } else if (bound == bound_of<first>) {
        body(constant_of<first>());
    } else {
        dispatch_over<rest...>(bound, static_cast<Body&&>(body));
    }
}

// A constant of this owner's code.
template <Name name, auto value>
struct Provided : Fact<name> {
    using Fact<name>::Fact;
    static constexpr auto constant = value;
    __device__ __forceinline__ static constexpr long long at(Self) { return bound_of<value>; }
    static constexpr void describe(Writer& out) {
        out.field("kind", "provides");
        write_values<value>(out);
        write_type<value>(out);
    }
};

// A constant of a header that several owners compile: all who state it must state the same.
template <Name name, auto value>
struct Agreed : Provided<name, value> {
    using Provided<name, value>::Provided;
    static constexpr void describe(Writer& out) {
        out.field("kind", "agrees");
        write_values<value>(out);
        write_type<value>(out);
    }
};

// A value that the link fixes, out of a set if there is one.
template <Name name, auto... values>
struct Bound : Fact<name> {
    using Fact<name>::Fact;
    __device__ __forceinline__ static long long at(Self self) {
        return pipelink_bind(self, slot_of<name>);
    }
    template <class Body>
    __device__ __forceinline__ static void dispatch(Self self, Body&& body) {
        static_assert(sizeof...(values) > 0, "dispatch needs the set of values that are supported");
        dispatch_over<values...>(at(self), static_cast<Body&&>(body));
    }
};

// A value that the link takes from this owner's set: the manifest picks, the first is the default.
template <Name name, auto... values>
struct Chosen : Bound<name, values...> {
    using Bound<name, values...>::Bound;
    static constexpr void describe(Writer& out) {
        out.field("kind", "chooses");
        write_values<values...>(out);
        write_type<values...>(out);
    }
};

// A value that another owner, or the kernel, fixes. With `values`, only those are supported.
template <Name name, auto... values>
struct Imported : Bound<name, values...> {
    using Bound<name, values...>::Bound;
    static constexpr void describe(Writer& out) {
        out.field("kind", "imports");
        if constexpr (sizeof...(values) > 0) {
            write_values<values...>(out);
            write_type<values...>(out);
        }
    }
};
template <Name name, auto any>
    requires is_any<std::remove_const_t<decltype(any)>>
struct Imported<name, any> : Bound<name> {
    using Bound<name>::Bound;
    static constexpr void describe(Writer& out) {
        out.field("kind", "imports");
        out.field("type", kind_of<any>::type);
    }
};

// An import that has a value of its own where nobody provides one.
template <Name name, auto default_, auto... values>
struct Defaulted : Bound<name, values...> {
    using Bound<name, values...>::Bound;
    static constexpr void describe(Writer& out) {
        out.field("kind", "imports");
        if constexpr (sizeof...(values) > 0) write_values<values...>(out);
        write_type<default_>(out);
        out.key("default");
        kind_of<default_>::write(out, default_);
    }
};

// A value that follows from others, provided under a name of its own.
template <Name name, class Value>
struct Derived : Fact<name> {
    using Fact<name>::Fact;
    __device__ __forceinline__ static long long at(Self self) { return Value::at(self); }
    static constexpr void describe(Writer& out) {
        out.field("kind", "derives");
        write_expression<Value>(out, "value");
    }
};

// A size known at launch only, read from the shape of a tensor; an int argument of entries.
template <Name name>
struct Extent : Fact<name> {
    using Fact<name>::Fact;
    using Argument = int;
    static constexpr void describe(Writer& out) { out.field("kind", "extent"); }
};

template <Name name, auto value>
constexpr auto provides(PIPELINK_HERE) {
    return Provided<name, value>(Place{file, line});
}
template <Name name, auto value>
constexpr auto agrees(PIPELINK_HERE) {
    return Agreed<name, value>(Place{file, line});
}
template <Name name, auto... values>
constexpr auto chooses(PIPELINK_HERE) {
    return Chosen<name, values...>(Place{file, line});
}
template <Name name, auto... values>
constexpr auto imports(PIPELINK_HERE) {
    return Imported<name, values...>(Place{file, line});
}
// imports_or<"raster", 16>(): 16 where nobody provides it; with more values, only those work.
template <Name name, auto default_, auto... values>
constexpr auto imports_or(PIPELINK_HERE) {
    if constexpr (sizeof...(values) == 0) {
        return Defaulted<name, default_>(Place{file, line});
    } else {
        return Defaulted<name, default_, default_, values...>(Place{file, line});
    }
}
template <Name name, ExpressionOrNumber Value>
constexpr auto derives(Value, PIPELINK_HERE) {
    return Derived<name, expression_of<Value>>(Place{file, line});
}
template <Name name>
constexpr auto extent(PIPELINK_HERE) {
    return Extent<name>(Place{file, line});
}

}  // namespace format2
}  // namespace pipelink
