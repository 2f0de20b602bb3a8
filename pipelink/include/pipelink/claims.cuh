// Claims on the resources that the components of a kernel share, and requirements.
#pragma once

#include <pipelink/facts.cuh>

namespace pipelink {

struct ClaimTag {};

template <Name name_>
struct Claim : ClaimTag {
    static constexpr auto& name = name_.text;
    Place place;
    constexpr explicit Claim(Place at) : place(at) {}
};

template <Expression Value>
constexpr void write_expression(Writer& out, const char* key) {
    out.key(key);
    out.put('"');
    Value::write(out);
    out.put('"');
}

// `Bytes` bytes of shared memory, at a multiple of `align`.
template <Name name, int align, class Bytes>
struct SharedClaim : Claim<name> {
    using Claim<name>::Claim;
    __device__ __forceinline__ static std::uint32_t address(Self self, std::uint32_t offset = 0) {
        return pipelink_region(self, slot_of<name>, offset);
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "shared");
        write_expression<Bytes>(out, "amount");
        out.field("align", align);
    }
};
template <Name name, int align = 16, Expression Bytes>
constexpr auto claims_shared(Bytes, PIPELINK_HERE) {
    return SharedClaim<name, align, Bytes>(Place{file, line});
}

// A named barrier for `Threads` threads. The link picks the id, unless `fixed` names one.
template <Name name, int fixed, class Threads>
struct BarrierClaim : Claim<name> {
    using Claim<name>::Claim;
    __device__ __forceinline__ static void sync(Self self) {
        const auto id = fixed >= 0 ? fixed : pipelink_bind(self, slot_of<name>);
        pipelink_barrier_sync(self, slot_of<name>, static_cast<unsigned>(id),
                              static_cast<unsigned>(Threads::at(self)));
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "barrier");
        write_expression<Threads>(out, "amount");
        if (fixed >= 0) out.field("fixed", fixed);
    }
};
template <Name name, int fixed = -1, Expression Threads>
constexpr auto claims_barrier(Threads, PIPELINK_HERE) {
    return BarrierClaim<name, fixed, Threads>(Place{file, line});
}

// `Count` mbarriers that the glue initialises for `Arrivals` arrivals a phase.
template <Name name, class Count, class Arrivals>
struct MbarrierClaim : Claim<name> {
    using Claim<name>::Claim;
    __device__ __forceinline__ static std::uint32_t address(Self self, unsigned index) {
        return pipelink_region(self, slot_of<name>, index * 8);
    }
    __device__ __forceinline__ static void wait(Self self, unsigned index, unsigned parity) {
        pipelink_wait(self, slot_of<name>, index, address(self, index), parity);
    }
    __device__ __forceinline__ static void arrive(Self self, unsigned index) {
        pipelink_arrive(self, slot_of<name>, index, address(self, index));
    }
    static constexpr void describe(Writer& out) {
        out.field("kind", "mbarrier");
        write_expression<Count>(out, "amount");
        write_expression<Arrivals>(out, "arrivals");
    }
};
template <Name name, Expression Count, Expression Arrivals>
constexpr auto claims_mbarriers(Count, Arrivals, PIPELINK_HERE) {
    return MbarrierClaim<name, Count, Arrivals>(Place{file, line});
}

// A claim that is one number of the role: its warps, the registers of a thread, stack bytes.
template <Name kind, class Amount>
struct RoleClaim : Claim<kind> {
    using Claim<kind>::Claim;
    static constexpr void describe(Writer& out) {
        out.field("kind", kind.text);
        write_expression<Amount>(out, "amount");
    }
};
template <Expression Amount>
constexpr auto claims_warps(Amount, PIPELINK_HERE) {
    return RoleClaim<"warps", Amount>(Place{file, line});
}
template <Expression Amount>
constexpr auto claims_registers(Amount, PIPELINK_HERE) {
    return RoleClaim<"registers", Amount>(Place{file, line});
}
// Stack bytes a thread, spills among them, that this component is known to need.
template <Expression Amount>
constexpr auto claims_stack(Amount, PIPELINK_HERE) {
    return RoleClaim<"stack", Amount>(Place{file, line});
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

// This thread's number within its role.
__device__ __forceinline__ unsigned role_thread(Self self) {
    return threadIdx.x - static_cast<unsigned>(pipelink_bind(self, slot_of<"role.first_thread">));
}

}  // namespace pipelink
