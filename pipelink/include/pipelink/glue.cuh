// What the glue does around steps: stages of buffers handed from role to role, roles that wait for
// themselves, tensor memory. Waits and arrivals go through the flavor's hooks.
#pragma once

#include <pipelink/ptx.cuh>
#include <pipelink/transfer.cuh>

namespace pipelink {
inline namespace format2 {

// True in one thread of a warp, of which all threads ask; always in the same one.
__device__ __forceinline__ bool elect_one() {
#if __CUDA_ARCH__ >= 900
    std::uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred it;\n"
        "elect.sync _|it, 0xffffffff;\n"
        "selp.b32 %0, 1, 0, it;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
#else
    return threadIdx.x % 32 == 0;
#endif
}

// The address of the current stage's mbarrier; `mbarrier` is the offset of stage 0's.
__device__ __forceinline__ std::uint32_t stage_barrier(std::uint32_t mbarrier,
                                                       const RingState& state) {
    return pipelink_address(mbarrier + state.stage * 8);
}

__device__ __forceinline__ void next_stage(RingState& state, unsigned stages) {
    if (++state.stage == stages) {
        state.stage = 0;
        state.phase ^= 1;
    }
}

// Waits until the readers of the current stage have released it; until it is filled.
__device__ __forceinline__ void acquire(Self self, std::uint64_t slot, std::uint32_t mbarrier,
                                        const RingState& state) {
    pipelink_wait(self, slot, state.stage, stage_barrier(mbarrier, state), state.phase ^ 1);
}
__device__ __forceinline__ void wait(Self self, std::uint64_t slot, std::uint32_t mbarrier,
                                     const RingState& state) {
    pipelink_wait(self, slot, state.stage, stage_barrier(mbarrier, state), state.phase);
}

// A warp has filled or read the current stage: one of its threads arrives for it.
__device__ __forceinline__ void hand_over(Self self, std::uint64_t slot, std::uint32_t mbarrier,
                                          RingState& state, unsigned stages) {
    sync_warp();
    if (threadIdx.x % 32 == 0) {
        pipelink_arrive(self, slot, state.stage, stage_barrier(mbarrier, state));
    }
    next_stage(state, stages);
}

// The warps of a role wait for one another.
__device__ __forceinline__ void role_sync(unsigned barrier, unsigned threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
// Columns of tensor memory for the whole block, by one warp; the hardware writes their address to
// `word`. The plan has them start at column 0, as those of the only block of an SM do.
__device__ __forceinline__ void allocate_columns(std::uint32_t word, unsigned columns) {
    asm volatile(
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(word),
        "r"(columns)
        : "memory");
    std::uint32_t first;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(first) : "r"(word) : "memory");
    if (first != 0) asm volatile("trap;");
}
// Around a barrier, after which other threads use the columns.
__device__ __forceinline__ void columns_before_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void columns_after_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void free_columns(unsigned columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(0), "r"(columns));
}
#endif

}  // namespace format2
}  // namespace pipelink
