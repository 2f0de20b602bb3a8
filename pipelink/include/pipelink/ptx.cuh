// The few bare instructions that more than one owner needs; each is one PTX statement.
// Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor", "setmaxnreg".
#pragma once

#include <pipelink/abi.cuh>

namespace pipelink {
inline namespace format2 {

// Makes this thread's ordinary stores to shared memory visible to bulk copies and wgmma.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies the box of `map` at element (x, y) to shared address `target`; completes on `mbarrier`.
__device__ __forceinline__ void bulk_load_2d(std::uint32_t target, const TensorMap* map, int x,
                                             int y, std::uint32_t mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(target),
        "l"(map), "r"(x), "r"(y), "r"(mbarrier)
        : "memory");
}

// The same of a tensor of three sides, at element (x, y, z).
__device__ __forceinline__ void bulk_load_3d(std::uint32_t target, const TensorMap* map, int x,
                                             int y, int z, std::uint32_t mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(target),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(mbarrier)
        : "memory");
}

// Copies 16 bytes to shared address `target` in the background (cp.async), past the first cache.
__device__ __forceinline__ void copy_async_16(std::uint32_t target, const void* source) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(source)
                 : "memory");
}

// Hides the latency of a tensor map's first use.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace format2
}  // namespace pipelink
