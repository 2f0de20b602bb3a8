// Text at compile time: names as template arguments, and the writer that a contract is built with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pipelink {
inline namespace format2 {

// A string literal as a template argument.
template <std::size_t N>
struct Name {
    char text[N]{};
    consteval Name(const char (&source)[N]) {
        for (std::size_t i = 0; i < N; ++i) text[i] = source[i];
    }
};

// Not constexpr, so that a compiler names it when a contract does not fit.
void contract_is_longer_than_contract_capacity();

// A fixed buffer that consteval code appends to; taken at its exact size in the end.
template <std::size_t Capacity>
struct Buffer {
    char data[Capacity]{};
    std::size_t size = 0;

    constexpr void put(char c) {
        if (size == Capacity) contract_is_longer_than_contract_capacity();
        data[size++] = c;
    }
    constexpr void put(const char* text) {
        while (*text) put(*text++);
    }
    constexpr void number(long long value) {
        char digits[20]{};
        int count = 0;
        unsigned long long rest = value < 0 ? 0ull - static_cast<unsigned long long>(value) : value;
        do digits[count++] = static_cast<char>('0' + rest % 10);
        while (rest /= 10);
        if (value < 0) put('-');
        while (count) put(digits[--count]);
    }
    // The inside of a JSON string; control characters do not occur in names, reasons and paths.
    constexpr void escape(const char* text) {
        for (; *text; ++text) {
            if (*text == '"' || *text == '\\') put('\\');
            put(*text);
        }
    }
    constexpr void quote(const char* text) {
        put('"');
        escape(text);
        put('"');
    }
    constexpr void key(const char* name) {
        separate();
        quote(name);
        put(':');
    }
    // A comma, unless this is the first member of an object or array.
    constexpr void separate() {
        if (size && data[size - 1] != '{' && data[size - 1] != '[') put(',');
    }
    constexpr void field(const char* name, const char* value) {
        key(name);
        quote(value);
    }
    constexpr void field(const char* name, long long value) {
        key(name);
        number(value);
    }
    constexpr void truth(bool value) { put(value ? "true" : "false"); }
    constexpr void strings(const char* name, const char* const* texts, std::size_t count) {
        key(name);
        put('[');
        for (std::size_t i = 0; i < count; ++i) {
            separate();
            quote(texts[i]);
        }
        put(']');
    }
};

inline constexpr std::size_t contract_capacity = 16384;
using Writer = Buffer<contract_capacity>;

// FNV-1a, 64 bits: slots are hashes of names, the fingerprint is the hash of a contract.
constexpr std::uint64_t hash_bytes(const char* data, std::size_t size) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (std::size_t i = 0; i < size; ++i) {
        hash ^= static_cast<unsigned char>(data[i]);
        hash *= 0x100000001b3ull;
    }
    return hash;
}

template <Name name>
inline constexpr std::uint64_t slot_of = hash_bytes(name.text, sizeof(name.text) - 1);

// "port" and "part" to "port.part": the slot of one part of a port.
template <Name port, Name part>
consteval std::uint64_t part_slot() {
    char text[sizeof(port.text) + sizeof(part.text)]{};
    std::size_t size = 0;
    for (std::size_t i = 0; port.text[i]; ++i) text[size++] = port.text[i];
    text[size++] = '.';
    for (std::size_t i = 0; part.text[i]; ++i) text[size++] = part.text[i];
    return hash_bytes(text, size);
}

// "warps" and "load" to "warps_load": a name made of others.
template <Name first, Name... rest>
consteval auto joined() {
    constexpr std::size_t size = (sizeof(first.text) + ... + sizeof(rest.text));
    char text[size]{};
    std::size_t end = 0;
    const auto add = [&](const char* part) {
        if (end) text[end++] = '_';
        for (std::size_t i = 0; part[i]; ++i) text[end++] = part[i];
    };
    (add(first.text), ..., add(rest.text));
    return Name<size>(text);
}

// Where a line of a contract stands, in its owner's source or a header of it.
struct Place {
    const char* file;
    int line;
};

}  // namespace format2
}  // namespace pipelink

// The caller's place, as the last parameters of a function.
#define PIPELINK_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
