// Claims on the resources that the components of a kernel share, requirements, and who arrives.
#pragma once

#include <pipelink/facts.cuh>

namespace pipelink {
inline namespace format2 {

// This thread's number within its role.
__device__ __forceinline__ unsigned role_thread(Self self) {
    return threadIdx.x - static_cast<unsigned>(pipelink_bind(self, slot_of<"role.first_thread">));
}

// The threads of this instance's role, in expressions: what code relies on that has one thread an
// element. Facts can't be derived from it.
struct RoleThreads : ExpressionTag {
    __device__ __forceinline__ static long long at(Self self) {
        return pipelink_bind(self, slot_of<"role.threads">);
    }
    static constexpr void write(Writer& out) { out.put("role_threads"); }
};
inline constexpr RoleThreads role_threads{};

// A shared address as a pointer of C++.
template <class T>
__device__ __forceinline__ T* shared_pointer(std::uint32_t address) {
    return static_cast<T*>(__cvta_shared_to_generic(address));
}

// Who arrives at an mbarrier. The link computes how many that are from the role's warps, and the
// code elects them with the same type.
struct OneThread {
    static constexpr const char* name = "one_thread";
    __device__ __forceinline__ static bool elected(Self self) { return role_thread(self) == 0; }
};
struct EachWarp {
    static constexpr const char* name = "each_warp";
    __device__ __forceinline__ static bool elected(Self self) {
        return role_thread(self) % 32 == 0;
    }
};
struct EachWarpgroup {
    static constexpr const char* name = "each_warpgroup";
    __device__ __forceinline__ static bool elected(Self self) {
        return role_thread(self) % 128 == 0;
    }
};
struct EachThread {
    static constexpr const char* name = "each_thread";
    __device__ __forceinline__ static bool elected(Self) { return true; }
};
inline constexpr OneThread one_thread{};
inline constexpr EachWarp each_warp{};
inline constexpr EachWarpgroup each_warpgroup{};
inline constexpr EachThread each_thread{};

template <class T>
inline constexpr bool is_arriver =
    std::is_same_v<T, OneThread> || std::is_same_v<T, EachWarp> ||
    std::is_same_v<T, EachWarpgroup> || std::is_same_v<T, EachThread>;
template <class T>
concept Arriver = is_arriver<T>;

// For whom a claim is one: the role, or each of its warpgroups or warps.
struct PerRole {
    static constexpr const char* name = nullptr;
    __device__ __forceinline__ static unsigned index(Self) { return 0; }
};
struct PerWarpgroup {
    static constexpr const char* name = "warpgroup";
    __device__ __forceinline__ static unsigned index(Self self) { return role_thread(self) / 128; }
};
struct PerWarp {
    static constexpr const char* name = "warp";
    __device__ __forceinline__ static unsigned index(Self self) { return role_thread(self) / 32; }
};

struct ClaimTag {};

template <Name name_>
struct Claim : ClaimTag {
    static constexpr auto& name = name_.text;
    Place place;
    constexpr explicit Claim(Place at) : place(at) {}
};

template <class Scope, Name... entries>
constexpr void write_scope(Writer& out) {
    if constexpr (Scope::name != nullptr) out.field("scope", Scope::name);
    if constexpr (sizeof...(entries) > 0) {
        const char* const texts[] = {entries.text...};
        out.strings("during", texts, sizeof...(entries));
    }
}

// `Bytes` bytes of shared memory, at a multiple of `align`, one for each `Scope`. What is one for
// each warp is reached by other names than what is one for the role: the code says which it means.
template <Name name, class T, int align, class Bytes, class Scope, Name... entries>
struct SharedClaim : Claim<name> {
    using Claim<name>::Claim;
    // 32-bit shared address, `offset` bytes from the start; and the same as a pointer.
    __device__ __forceinline__ static std::uint32_t address(Self self, std::uint32_t offset = 0) {
        static_assert(std::is_same_v<Scope, PerRole>, "this claim is not one for the role");
        return pipelink_region(self, slot_of<name>, offset);
    }
    template <class Element = T>
    __device__ __forceinline__ static Element* pointer(Self self) {
        static_assert(std::is_same_v<Scope, PerRole>, "this claim is not one for the role");
        return shared_pointer<Element>(address(self));
    }
    // The same of this thread's warp, and of its warpgroup.
    __device__ __forceinline__ static std::uint32_t warp_address(Self self,
                                                                 std::uint32_t offset = 0) {
        static_assert(std::is_same_v<Scope, PerWarp>, "this claim is not one for each warp");
        return pipelink_region(self, slot_of<name>, own(self) + offset);
    }
    template <class Element = T>
    __device__ __forceinline__ static Element* warp_pointer(Self self) {
        static_assert(std::is_same_v<Scope, PerWarp>, "this claim is not one for each warp");
        return shared_pointer<Element>(warp_address(self));
    }
    __device__ __forceinline__ static std::uint32_t warpgroup_address(Self self,
                                                                      std::uint32_t offset = 0) {
        static_assert(std::is_same_v<Scope, PerWarpgroup>,
                      "this claim is not one for each warpgroup");
        return pipelink_region(self, slot_of<name>, own(self) + offset);
    }
    template <class Element = T>
    __device__ __forceinline__ static Element* warpgroup_pointer(Self self) {
        static_assert(std::is_same_v<Scope, PerWarpgroup>,
                      "this claim is not one for each warpgroup");
        return shared_pointer<Element>(warpgroup_address(self));
    }
    constexpr auto per_warp() const {
        return SharedClaim<name, T, align, Bytes, PerWarp, entries...>(this->place);
    }
    constexpr auto per_warpgroup() const {
        return SharedClaim<name, T, align, Bytes, PerWarpgroup, entries...>(this->place);
    }
    // In which entries the bytes are in use; in all, if it is not said.
    template <Name... names>
    constexpr auto during() const {
        return SharedClaim<name, T, align, Bytes, Scope, names...>(this->place);
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "shared");
        write_expression<Bytes>(out, "amount");
        out.field("align", align);
        write_scope<Scope, entries...>(out);
    }

  private:
    __device__ __forceinline__ static std::uint32_t own(Self self) {
        return Scope::index(self) *
               static_cast<std::uint32_t>((Bytes::at(self) + align - 1) / align * align);
    }
};
template <Name name, int align = 16, ExpressionOrNumber Bytes>
constexpr auto claims_shared(Bytes, PIPELINK_HERE) {
    return SharedClaim<name, void, align, expression_of<Bytes>, PerRole>(Place{file, line});
}
// `Count` elements of shared memory.
template <Name name, class T, int align = 16, ExpressionOrNumber Count>
constexpr auto claims_array(Count, PIPELINK_HERE) {
    using Bytes = Multiply<expression_of<Count>, Literal<sizeof(T)>>;
    return SharedClaim<name, T, align, Bytes, PerRole>(Place{file, line});
}

// All threads of the role, or of the warpgroup where a barrier is one for each.
struct AllThreads : ExpressionTag {
    static constexpr void write(Writer&) {}
};

// `Count` named barriers of consecutive ids, each for `Threads` threads. The link picks the first
// id, unless `fixed` names it.
template <Name name, int fixed, class Count, class Threads, class Scope, Name... entries>
struct BarrierClaim : Claim<name> {
    using Claim<name>::Claim;
    __device__ __forceinline__ static void sync(Self self, unsigned index = 0) {
        static_assert(std::is_same_v<Scope, PerRole>, "this claim is not one for the role");
        meet(self, index);
    }
    // The threads of this thread's warpgroup meet.
    __device__ __forceinline__ static void sync_warpgroup(Self self, unsigned index = 0) {
        static_assert(std::is_same_v<Scope, PerWarpgroup>,
                      "this claim is not one for each warpgroup");
        meet(self, index);
    }
    __device__ __forceinline__ static unsigned threads(Self self) {
        if constexpr (std::is_same_v<Threads, AllThreads>) {
            return static_cast<unsigned>(pipelink_bind(self, part_slot<name, "threads">()));
        } else {
            return static_cast<unsigned>(Threads::at(self));
        }
    }
    constexpr auto per_warpgroup() const {
        return BarrierClaim<name, fixed, Count, Threads, PerWarpgroup, entries...>(this->place);
    }
    template <Name... names>
    constexpr auto during() const {
        return BarrierClaim<name, fixed, Count, Threads, Scope, names...>(this->place);
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "barrier");
        write_expression<Threads>(out, "amount");
        write_expression<Count>(out, "count");
        if (fixed >= 0) out.field("fixed", fixed);
        write_scope<Scope, entries...>(out);
    }

  private:
    __device__ __forceinline__ static void meet(Self self, unsigned index) {
        const auto first = fixed >= 0 ? fixed : pipelink_bind(self, slot_of<name>);
        const auto id = static_cast<unsigned>(first + Scope::index(self) * Count::at(self)) + index;
        pipelink_barrier_sync(self, slot_of<name>, id, threads(self));
    }
};
template <Name name, int fixed = -1>
constexpr auto claims_barrier(PIPELINK_HERE) {
    return BarrierClaim<name, fixed, Literal<1>, AllThreads, PerRole>(Place{file, line});
}
template <Name name, int fixed = -1, ExpressionOrNumber Threads>
constexpr auto claims_barrier(Threads, PIPELINK_HERE) {
    using Size = expression_of<Threads>;
    return BarrierClaim<name, fixed, Literal<1>, Size, PerRole>(Place{file, line});
}
template <Name name, int fixed = -1, ExpressionOrNumber Count>
constexpr auto claims_barriers(Count, PIPELINK_HERE) {
    return BarrierClaim<name, fixed, expression_of<Count>, AllThreads, PerRole>(Place{file, line});
}
template <Name name, int fixed = -1, ExpressionOrNumber Count, ExpressionOrNumber Threads>
constexpr auto claims_barriers(Count, Threads, PIPELINK_HERE) {
    using Size = expression_of<Threads>;
    return BarrierClaim<name, fixed, expression_of<Count>, Size, PerRole>(Place{file, line});
}

// `Count` mbarriers that the glue initialises for the arrivals of a phase: `By` says who, or how
// many.
template <Name name, class Count, class By>
struct MbarrierClaim : Claim<name> {
    using Claim<name>::Claim;
    __device__ __forceinline__ static std::uint32_t address(Self self, unsigned index) {
        return pipelink_region(self, slot_of<name>, index * 8);
    }
    __device__ __forceinline__ static void wait(Self self, unsigned index, unsigned parity) {
        pipelink_wait(self, slot_of<name>, index, address(self, index), parity);
    }
    __device__ __forceinline__ static void arrive(Self self, unsigned index) {
        if constexpr (Arriver<By>) {
            if (!By::elected(self)) return;
        }
        pipelink_arrive(self, slot_of<name>, index, address(self, index));
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "mbarrier");
        write_expression<Count>(out, "amount");
        if constexpr (Arriver<By>) {
            out.field("by", By::name);
        } else {
            write_expression<By>(out, "arrivals");
        }
    }
};
template <Name name, ExpressionOrNumber Count, Arriver By>
constexpr auto claims_mbarriers(Count, By, PIPELINK_HERE) {
    return MbarrierClaim<name, expression_of<Count>, By>(Place{file, line});
}
template <Name name, ExpressionOrNumber Count, ExpressionOrNumber Arrivals>
constexpr auto claims_mbarriers(Count, Arrivals, PIPELINK_HERE) {
    return MbarrierClaim<name, expression_of<Count>, expression_of<Arrivals>>(Place{file, line});
}

// `Columns` columns of tensor memory. The glue allocates those of all claims at once, and the first
// column of each is a constant.
template <Name name, class Columns, Name... entries>
struct ColumnClaim : Claim<name> {
    using Claim<name>::Claim;
    // The tensor-memory address of this claim's first column: its lane is 0.
    __device__ __forceinline__ static std::uint32_t address(Self self) {
        return static_cast<std::uint32_t>(pipelink_bind(self, slot_of<name>));
    }
    template <Name... names>
    constexpr auto during() const {
        return ColumnClaim<name, Columns, names...>(this->place);
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "tensor_columns");
        write_expression<Columns>(out, "amount");
        write_scope<PerRole, entries...>(out);
    }
};
template <Name name, ExpressionOrNumber Columns>
constexpr auto claims_tensor_columns(Columns, PIPELINK_HERE) {
    return ColumnClaim<name, expression_of<Columns>>(Place{file, line});
}

// A claim that is one number of the role: its warps, the registers of a thread, stack bytes.
template <Name kind, class Amount, Name... entries>
struct RoleClaim : Claim<joined<kind, entries...>()> {
    using Claim<joined<kind, entries...>()>::Claim;
    // In which entries it is needed, where a component has entries for several roles.
    template <Name... names>
    constexpr auto during() const {
        return RoleClaim<kind, Amount, names...>(this->place);
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", kind.text);
        write_expression<Amount>(out, "amount");
        write_scope<PerRole, entries...>(out);
    }
};
template <ExpressionOrNumber Amount>
constexpr auto claims_warps(Amount, PIPELINK_HERE) {
    return RoleClaim<"warps", expression_of<Amount>>(Place{file, line});
}
template <ExpressionOrNumber Amount>
constexpr auto claims_registers(Amount, PIPELINK_HERE) {
    return RoleClaim<"registers", expression_of<Amount>>(Place{file, line});
}
// Stack bytes a thread, spills among them, that this component is known to need.
template <ExpressionOrNumber Amount>
constexpr auto claims_stack(Amount, PIPELINK_HERE) {
    return RoleClaim<"stack", expression_of<Amount>>(Place{file, line});
}

// An expression that must hold, with the reason that a diagnostic gives.
struct RequirementTag {};
template <class Condition>
struct Requirement : RequirementTag {
    const char* why;
    Place place;
    constexpr Requirement(const char* reason, Place at) : why(reason), place(at) {}
    constexpr void describe(Writer& out) const {
        write_expression<Condition>(out, "condition");
        out.field("why", why);
    }
};
template <Expression Condition>
constexpr auto requires_that(Condition, const char* why, PIPELINK_HERE) {
    return Requirement<Condition>(why, Place{file, line});
}

// A type that owners compile from one header: its layout must be the same in all objects.
struct FieldInfo {
    const char* name;
    std::size_t offset;
    std::size_t size;
};
#define PIPELINK_FIELD(type, member) \
    pipelink::FieldInfo { #member, offsetof(type, member), sizeof(type::member) }

struct SharedTypeTag {};
template <class T, Name name_, std::size_t count>
struct SharedType : SharedTypeTag {
    static constexpr auto& name = name_.text;
    Place place;
    FieldInfo fields[count];
    constexpr void describe(Writer& out) const {
        out.field("size", static_cast<long long>(sizeof(T)));
        out.field("align", static_cast<long long>(alignof(T)));
        out.key("fields");
        out.put('[');
        for (const FieldInfo& f : fields) {
            out.separate();
            out.put('{');
            out.field("name", f.name);
            out.field("offset", static_cast<long long>(f.offset));
            out.field("size", static_cast<long long>(f.size));
            out.put('}');
        }
        out.put(']');
    }
};
template <class T, Name name>
struct SharedTypeMaker {
    Place place;
    template <class... Fields>
    constexpr auto operator()(Fields... fields) const {
        return SharedType<T, name, sizeof...(Fields)>{{}, place, {fields...}};
    }
};
// shared_type<Route, "Route">()(PIPELINK_FIELD(Route, expert), PIPELINK_FIELD(Route, weight))
template <class T, Name name>
constexpr auto shared_type(PIPELINK_HERE) {
    return SharedTypeMaker<T, name>{Place{file, line}};
}

}  // namespace format2
}  // namespace pipelink
