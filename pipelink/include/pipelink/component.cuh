// What an owner includes: facts, claims, ports, and the contract that embeds them in the object.
//
// A contract is written once, as constant objects; the same objects are used in the code:
//
//     constexpr auto stages = pl::provides<"stages", 4>();
//     constexpr auto run = pl::entry<"run">()(pl::tile, ...);
//     constexpr auto contract = pl::contract<"my_loader", "my-team", "1.0.0">(stages, ..., run);
//     PIPELINK_COMPONENT(my_loader, contract)
//     PIPELINK_ENTRY(my_loader, run)(pl::Self self, const pl::Tile& tile, ...) {
//         ... stages.at(self) ...
//     }
//
// An owner's code stands in a namespace of its own, so that the control can hold all owners'
// sources.
#pragma once

#include <pipelink/claims.cuh>
#include <pipelink/play.cuh>
#include <pipelink/ports.cuh>
#include <pipelink/ptx.cuh>

#ifndef PIPELINK_TARGET
#error \
    "compile components with `pipelink compile`, which records the target and the build in the object"
#endif

namespace pipelink {
inline namespace format2 {

// The tile that an entry works on, in an entry's list of arguments.
struct TileArgument {
    static constexpr const char* name = "tile";
    using Argument = const Tile&;
};
inline constexpr TileArgument tile{};

struct EntryTag {};
// Run by one thread of the role or by all; going by the groups of its tile's rows or not.
template <bool one_thread_, bool groups_>
struct Step {
    static constexpr const char* kind = "step";
    static constexpr bool is_step = true;
    static constexpr bool one_thread = one_thread_;
    static constexpr bool groups = groups_;
    template <class... Arguments>
    using Signature = void(Self, Arguments...);
};
// Sets the `index`-th tile of this block, or returns false after the last.
struct Schedule {
    static constexpr const char* kind = "schedule";
    static constexpr bool is_step = false;
    static constexpr bool one_thread = false;
    static constexpr bool groups = false;
    template <class... Arguments>
    using Signature = bool(Self, int index, Tile&, Arguments...);
};

// A side of the tile schedule: as many tiles as steps cover `Of`.
template <class Of, class Step, bool groups>
struct Tiling {
    // The side is cut into groups, whose sizes only the run knows, and each group into tiles: the
    // schedule sets a tile's `group`, `first` and `end`.
    constexpr auto in_groups() const { return Tiling<Of, Step, true>{}; }
    static constexpr void write(Writer& out) {
        out.separate();
        out.put('{');
        write_expression<Of>(out, "of");
        write_expression<Step>(out, "step");
        if constexpr (groups) {
            out.key("groups");
            out.truth(true);
        }
        out.put('}');
    }
};
template <ExpressionOrNumber Of, ExpressionOrNumber Step>
constexpr auto steps_over(Of, Step) {
    return Tiling<expression_of<Of>, expression_of<Step>, false>{};
}

// A function that the glue calls: what it takes, in order, after the instance; what it does with
// rings; and, of a schedule, its rows and columns of tiles.
template <Name name_, class Kind, class Arguments, class Plays, class Tiles>
struct Entry;
template <Name name_, class Kind, class... Arguments, class... Plays, class... Tiles>
struct Entry<name_, Kind, Items<Arguments...>, Items<Plays...>, Items<Tiles...>> : EntryTag {
    static constexpr auto& name = name_.text;
    using Signature = typename Kind::template Signature<typename Arguments::Argument...>;
    Place place;
    constexpr explicit Entry(Place at) : place(at) {}
    template <Played... Operations>
    constexpr auto plays(Operations...) const {
        return Entry<name_, Kind, Items<Arguments...>, Items<Operations...>, Items<Tiles...>>(
            place);
    }
    // One thread of the role runs this step, as one that issues bulk copies: the glue elects it
    // outside of the loop over tiles, once.
    constexpr auto by_one_thread() const {
        static_assert(Kind::is_step, "a schedule is asked by all threads");
        return Entry<name_, Step<true, Kind::groups>, Items<Arguments...>, Items<Plays...>,
                     Items<Tiles...>>(place);
    }
    // The step goes by the `group`, `first` and `end` of its tile: of a schedule in groups alone.
    constexpr auto by_groups() const {
        static_assert(Kind::is_step, "a schedule says it of its rows: .in_groups()");
        return Entry<name_, Step<Kind::one_thread, true>, Items<Arguments...>, Items<Plays...>,
                     Items<Tiles...>>(place);
    }
    template <class Rows, class Columns>
    constexpr auto tiles(Rows, Columns) const {
        return Entry<name_, Kind, Items<Arguments...>, Items<Plays...>, Items<Rows, Columns>>(
            place);
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", Kind::kind);
        if constexpr (Kind::one_thread) out.field("threads", "one");
        if constexpr (Kind::groups) {
            out.key("groups");
            out.truth(true);
        }
        out.key("arguments");
        out.put('[');
        ((out.separate(), out.quote(Arguments::name)), ...);
        out.put(']');
        if constexpr (sizeof...(Plays) > 0) {
            out.key("plays");
            out.put('[');
            (Plays::write(out), ...);
            out.put(']');
        }
        if constexpr (sizeof...(Tiles) > 0) {
            out.key("tiles");
            out.put('[');
            (Tiles::write(out), ...);
            out.put(']');
        }
    }
};
template <Name name, class Kind>
struct EntryMaker {
    Place place;
    template <class... Arguments>
    constexpr auto operator()(Arguments...) const {
        return Entry<name, Kind, Items<Arguments...>, Items<>, Items<>>(place);
    }
};
// A step of a role: called once a tile.
template <Name name>
constexpr auto entry(PIPELINK_HERE) {
    return EntryMaker<name, Step<false, false>>{Place{file, line}};
}
// The tile schedule of the kernel.
template <Name name>
constexpr auto schedule(PIPELINK_HERE) {
    return EntryMaker<name, Schedule>{Place{file, line}};
}

template <class Tag, class Item>
constexpr void write_item(Writer& out, const Item& item) {
    if constexpr (std::is_base_of_v<Tag, Item>) {
        out.separate();
        out.put('{');
        if constexpr (!std::is_base_of_v<RequirementTag, Item>) out.field("name", Item::name);
        item.describe(out);
        out.put('}');
    }
}
template <class Tag, class... Items>
constexpr void write_items(Writer& out, const char* key, const Items&... items) {
    out.key(key);
    out.put('[');
    (write_item<Tag>(out, items), ...);
    out.put(']');
}
template <class Tag, class Item>
constexpr void write_line(Writer& out, const Item& item) {
    if constexpr (std::is_base_of_v<Tag, Item>) {
        out.separate();
        out.put('"');
        out.escape(item.place.file);
        out.put(':');
        out.number(item.place.line);
        out.put('"');
    }
}
template <class Tag, class... Items>
constexpr void write_lines(Writer& out, const char* key, const Items&... items) {
    out.key(key);
    out.put('[');
    (write_line<Tag>(out, items), ...);
    out.put(']');
}

// A contract as text: what goes into the plan, and apart from it where each line stands.
struct Contract {
    const char* component;
    Writer terms;
    Writer places;
};

template <Name component, Name owner, Name version, class... Items>
consteval Contract contract(const Items&... items) {
    Contract result{component.text, {}, {}};
    Writer& out = result.terms;
    out.put('{');
    out.field("component", component.text);
    out.field("owner", owner.text);
    out.field("version", version.text);
    out.field("target", PIPELINK_TARGET);
    out.field("floating_point", PIPELINK_FLOATING_POINT);
    out.key("toolchain");
    out.put('[');
    out.number(__CUDACC_VER_MAJOR__);
    out.put(',');
    out.number(__CUDACC_VER_MINOR__);
    out.put(']');
    write_items<FactTag>(out, "facts", items...);
    write_items<RequirementTag>(out, "requires", items...);
    write_items<ClaimTag>(out, "claims", items...);
    write_items<PortTag>(out, "ports", items...);
    write_items<EntryTag>(out, "entries", items...);
    write_items<PromiseTag>(out, "promises", items...);
    write_items<SharedTypeTag>(out, "types", items...);
    out.put('}');

    Writer& places = result.places;
    places.put('{');
    places.field("component", component.text);
    places.key("build");
    places.put(PIPELINK_BUILD);
    write_lines<FactTag>(places, "facts", items...);
    write_lines<RequirementTag>(places, "requires", items...);
    write_lines<ClaimTag>(places, "claims", items...);
    write_lines<PortTag>(places, "ports", items...);
    write_lines<EntryTag>(places, "entries", items...);
    write_lines<PromiseTag>(places, "promises", items...);
    write_lines<SharedTypeTag>(places, "types", items...);
    places.put('}');
    return result;
}

// One record of .note.pipelink: an ELF note, name and description padded to four bytes.
template <std::size_t size>
struct alignas(4) Note {
    std::uint32_t name_size = sizeof("PipeLink");
    std::uint32_t description_size = size;
    std::uint32_t type = 0;
    char name[12] = "PipeLink";
    char description[(size + 3) / 4 * 4]{};
};
inline constexpr std::uint32_t note_contract = 0x0201;
inline constexpr std::uint32_t note_places = 0x0202;

template <std::size_t size>
consteval Note<size> note(std::uint32_t type, const Writer& text) {
    Note<size> result{};
    result.type = type;
    for (std::size_t i = 0; i < size; ++i) result.description[i] = text.data[i];
    return result;
}

consteval std::uint64_t hash_contract(const char* data, std::size_t size) {
    return hash_bytes(data, size);
}

template <class Function>
struct ResultOf;
template <class Result, class... Arguments>
struct ResultOf<Result(Arguments...)> {
    using type = Result;
};

consteval bool same_text(const char* a, const char* b) {
    while (*a && *a == *b) ++a, ++b;
    return *a == *b;
}

}  // namespace format2
}  // namespace pipelink

// Notes are data of the host pass. The fingerprint is what the device pass sees: the glue compares
// the two, and a contract that differs between them cannot link.
#ifdef __CUDA_ARCH__
#define PIPELINK_NOTE(id, kind, text)
#else
#define PIPELINK_NOTE(id, kind, text)                                  \
    __attribute__((section(".note.pipelink"), used,                    \
                   aligned(4))) static const pipelink::Note<text.size> \
        pipelink_note_##id = pipelink::note<text.size>(kind, text);
#endif

#define PIPELINK_COMPONENT(id, terms_)                                                   \
    static_assert(pipelink::same_text(#id, terms_.component),                            \
                  "PIPELINK_COMPONENT and the contract name the component differently"); \
    PIPELINK_NOTE(id, pipelink::note_contract, terms_.terms)                             \
    PIPELINK_NOTE(id##_places, pipelink::note_places, terms_.places)                     \
    extern "C" __device__ std::uint64_t pipelink_fingerprint__##id() {                   \
        constexpr std::uint64_t fingerprint =                                            \
            pipelink::hash_contract(terms_.terms.data, terms_.terms.size);               \
        return fingerprint;                                                              \
    }

// Declares the entry with the type that the contract states; a definition that differs is an error.
#define PIPELINK_ENTRY(id, entry)                                               \
    extern "C" __device__ decltype(entry)::Signature pipelink__##id##__##entry; \
    extern "C" __device__ pipelink::ResultOf<decltype(entry)::Signature>::type  \
        pipelink__##id##__##entry
