// The hooks of the release flavor, but a wait that has a limit: a kernel that would hang ends with
// a fault, after a second. For experiments with kernels that may.
#pragma once

#include <pipelink/abi.cuh>

#define pipelink_wait pipelink_wait_for_ever
#include <pipelink/hooks/release.cuh>
#undef pipelink_wait

extern "C" __device__ void pipelink_wait(pipelink::Self, std::uint64_t, unsigned,
                                         std::uint32_t mbarrier, unsigned parity) {
    constexpr std::uint64_t limit = 1'000'000'000;  // nanoseconds
    std::uint64_t start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    for (;;) {
        unsigned done;
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "selp.b32 %0, 1, 0, done;\n"
            "}"
            : "=r"(done)
            : "r"(mbarrier), "r"(parity)
            : "memory");
        if (done) return;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - start > limit) asm volatile("trap;");
    }
}
