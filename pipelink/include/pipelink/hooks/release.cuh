// The release flavor of the hooks: each access is its bare instruction, nothing counted or checked.
#pragma once

#include <pipelink/abi.cuh>

#ifdef PIPELINK_GLUE_ALONE
extern "C" __device__ std::size_t __nv_cvta_generic_to_shared_impl(const void*);
#endif

// One arena for all dynamic shared memory of the kernel. It stays a byte array: typed shared arrays
// lose half-precision stores to an alias-analysis fault.
extern __shared__ __align__(1024) unsigned char pipelink_arena[];

// Hopper suspends a thread that waits; before it, the wait is a loop of tests.
#if __CUDA_ARCH__ >= 900
#define PIPELINK_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define PIPELINK_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#endif

extern "C" {

__device__ __forceinline__ std::uint32_t pipelink_address(std::uint32_t offset) {
    return static_cast<std::uint32_t>(__nv_cvta_generic_to_shared_impl(pipelink_arena)) + offset;
}

__device__ std::uint32_t pipelink_region(pipelink::Self self, std::uint64_t slot,
                                         std::uint32_t offset) {
    return pipelink_address(static_cast<std::uint32_t>(pipelink_bind(self, slot)) + offset);
}

__device__ void pipelink_wait(pipelink::Self, std::uint64_t, unsigned, std::uint32_t mbarrier,
                              unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT_%=:\n" PIPELINK_WAIT
        " done, [%0], %1;\n"
        "@done bra DONE_%=;\n"
        "bra WAIT_%=;\n"
        "DONE_%=:\n"
        "}" ::"r"(mbarrier),
        "r"(parity)
        : "memory");
}

__device__ void pipelink_arrive(pipelink::Self, std::uint64_t, unsigned, std::uint32_t mbarrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier) : "memory");
}

// When the copies have come that this thread started by cp.async; it counts as one of the arrivals.
__device__ void pipelink_arrive_async(pipelink::Self, std::uint64_t, unsigned,
                                      std::uint32_t mbarrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(mbarrier) : "memory");
}

__device__ void pipelink_arrive_expect(pipelink::Self, std::uint64_t, unsigned,
                                       std::uint32_t mbarrier, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier),
                 "r"(bytes)
                 : "memory");
}

__device__ void pipelink_barrier_sync(pipelink::Self, std::uint64_t, unsigned id,
                                      unsigned threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// What the glue itself does with mbarriers, before the roles start.
__device__ __forceinline__ void pipelink_mbarrier_init(std::uint32_t offset, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(pipelink_address(offset)),
                 "r"(arrivals)
                 : "memory");
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void pipelink_mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
#endif

}  // extern "C"
