// The link ABI: what components and glue agree on. docs/abi.md is its prose specification.
//
// A component is called with the number of its instance and asks for every value that the link
// decides through pipelink_bind(instance, slot). The glue defines pipelink_bind as nested switches;
// once link-time optimisation has inlined both sides, each call is a constant. Its default branch
// calls pipelink_unbound(), which nobody defines: a binding that did not fold cannot link.
#pragma once

// Glue is compiled without cuda_runtime.h, which nvcc puts before every source and which takes five
// times as long as the glue itself: this is what the glue needs of it.
#ifdef PIPELINK_GLUE_ALONE
#include <device_launch_parameters.h>
#include <vector_types.h>
#endif

#include <cstddef>
#include <cstdint>

// Handed through the glue by address only; its header alone would cost the glue a quarter second.
struct __nv_bfloat16;
struct __half;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace pipelink {
// Names change with the format of notes: objects of another one have inline functions of their own.
inline namespace format2 {

// The number of an instance in one kernel. One object may stand in a kernel more than once.
enum class Self : unsigned {};

// A tile of the kernel's schedule, in tiles, not elements. Where rows are in groups `row` counts
// within its group, and the tile has the rows from `first` to `end`, in elements of all groups.
struct Tile {
    int row;
    int column;
    int group;
    int first;
    int end;
};

// Where one side of a ring stands: kept by the glue over all tiles of a role.
struct RingState {
    unsigned stage = 0;
    unsigned phase = 0;
};

// A tensor map (CUtensorMap), filled by the loader; opaque to device code.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

}  // namespace format2
}  // namespace pipelink

// clang-format off
extern "C" {
__device__ long long pipelink_bind(pipelink::Self self, std::uint64_t slot);
__device__ void pipelink_unbound();

// Hooks. In the release flavor each is the bare instruction (hooks/release.cuh).
// `slot` names the claim or port that the access belongs to, `index` its stage or element.
__device__ std::uint32_t pipelink_region(pipelink::Self self, std::uint64_t slot, std::uint32_t offset);
__device__ void pipelink_wait(pipelink::Self self, std::uint64_t slot, unsigned index, std::uint32_t mbarrier, unsigned parity);
__device__ void pipelink_arrive(pipelink::Self self, std::uint64_t slot, unsigned index, std::uint32_t mbarrier);
__device__ void pipelink_arrive_async(pipelink::Self self, std::uint64_t slot, unsigned index, std::uint32_t mbarrier);
__device__ void pipelink_arrive_expect(pipelink::Self self, std::uint64_t slot, unsigned index, std::uint32_t mbarrier, std::uint32_t bytes);
__device__ void pipelink_barrier_sync(pipelink::Self self, std::uint64_t slot, unsigned id, unsigned threads);
}
// clang-format on
