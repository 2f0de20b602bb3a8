// The instructions of generated transfers. A fragment is an array of 32-bit words, in which a
// thread's values stand packed in memory order; all here takes and gives such words as raw bits, so
// that no header of an element type is needed. Each function is one PTX statement where there is
// one. Source: PTX ISA, "ldmatrix", "stmatrix", "prmt", "shfl.sync", "cvt".
#pragma once

#include <pipelink/abi.cuh>

namespace pipelink {
inline namespace format2 {

// A value that stays in its register: what it was computed from is not computed again where it is
// used, as the compiler would do in a loop to save a register.
__device__ __forceinline__ void keep(std::uint32_t& value) { asm("" : "+r"(value)); }

// CuTe's Swizzle<B,4,3> of an address relative to the tile, which starts at a multiple of its
// period.
template <unsigned bytes>
__device__ __forceinline__ std::uint32_t swizzle(std::uint32_t address) {
    static_assert(bytes == 32 || bytes == 64 || bytes == 128,
                  "a swizzle is of 32, 64 or 128 bytes");
    return address ^ (address >> 3 & (bytes - 16));
}

// Four bytes of `a` (0 to 3) and `b` (4 to 7), chosen by the selector's nibbles.
template <unsigned selector>
__device__ __forceinline__ std::uint32_t pick(std::uint32_t a, std::uint32_t b) {
    std::uint32_t word;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "n"(selector));
    return word;
}

// Stores and loads of 1 to 16 bytes; what is narrower than a word is its low bytes.
__device__ __forceinline__ void st_shared_b8(std::uint32_t address, std::uint32_t a) {
    asm volatile("st.shared.b8 [%0], %1;" ::"r"(address), "r"(a) : "memory");
}
__device__ __forceinline__ void st_shared_b16(std::uint32_t address, std::uint32_t a) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "r"(a) : "memory");
}
__device__ __forceinline__ void st_shared_b32(std::uint32_t address, std::uint32_t a) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(a) : "memory");
}
__device__ __forceinline__ void st_shared_v2_b32(std::uint32_t address, std::uint32_t a,
                                                 std::uint32_t b) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void st_shared_v4_b32(std::uint32_t address, std::uint32_t a,
                                                 std::uint32_t b, std::uint32_t c,
                                                 std::uint32_t d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
__device__ __forceinline__ void ld_shared_b8(std::uint32_t address, std::uint32_t& a) {
    asm volatile("ld.shared.b8 %0, [%1];" : "=r"(a) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared_b16(std::uint32_t address, std::uint32_t& a) {
    asm volatile("ld.shared.b16 %0, [%1];" : "=r"(a) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared_b32(std::uint32_t address, std::uint32_t& a) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared_v2_b32(std::uint32_t address, std::uint32_t& a,
                                                 std::uint32_t& b) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared_v4_b32(std::uint32_t address, std::uint32_t& a,
                                                 std::uint32_t& b, std::uint32_t& c,
                                                 std::uint32_t& d) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
}

// One, two or four matrices of 8 rows of 16 bytes; `row` is the address of the row that a lane
// names.
#define PIPELINK_MATRIX(suffix, trans)                                                           \
    __device__ __forceinline__ void stmatrix_x1##suffix(std::uint32_t row, std::uint32_t a) {    \
        asm volatile("stmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 [%0], {%1};" ::"r"(row), \
                     "r"(a)                                                                      \
                     : "memory");                                                                \
    }                                                                                            \
    __device__ __forceinline__ void stmatrix_x2##suffix(std::uint32_t row, std::uint32_t a,      \
                                                        std::uint32_t b) {                       \
        asm volatile("stmatrix.sync.aligned.m8n8.x2" trans                                       \
                     ".shared.b16 [%0], {%1, %2};" ::"r"(row),                                   \
                     "r"(a), "r"(b)                                                              \
                     : "memory");                                                                \
    }                                                                                            \
    __device__ __forceinline__ void stmatrix_x4##suffix(                                         \
        std::uint32_t row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) { \
        asm volatile("stmatrix.sync.aligned.m8n8.x4" trans                                       \
                     ".shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),                           \
                     "r"(a), "r"(b), "r"(c), "r"(d)                                              \
                     : "memory");                                                                \
    }                                                                                            \
    __device__ __forceinline__ void ldmatrix_x1##suffix(std::uint32_t row, std::uint32_t& a) {   \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 {%0}, [%1];"             \
                     : "=r"(a)                                                                   \
                     : "r"(row)                                                                  \
                     : "memory");                                                                \
    }                                                                                            \
    __device__ __forceinline__ void ldmatrix_x2##suffix(std::uint32_t row, std::uint32_t& a,     \
                                                        std::uint32_t& b) {                      \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0, %1}, [%2];"         \
                     : "=r"(a), "=r"(b)                                                          \
                     : "r"(row)                                                                  \
                     : "memory");                                                                \
    }                                                                                            \
    __device__ __forceinline__ void ldmatrix_x4##suffix(std::uint32_t row, std::uint32_t& a,     \
                                                        std::uint32_t& b, std::uint32_t& c,      \
                                                        std::uint32_t& d) {                      \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                        \
                     : "r"(row)                                                                  \
                     : "memory");                                                                \
    }
PIPELINK_MATRIX(, "")
PIPELINK_MATRIX(_trans, ".trans")
#undef PIPELINK_MATRIX

// What the warp's lanes wrote before is there for all of them.
__device__ __forceinline__ void sync_warp() { asm volatile("bar.warp.sync -1;" ::: "memory"); }

// The word of another lane; all lanes of the warp take part.
__device__ __forceinline__ std::uint32_t from_lane(std::uint32_t word, std::uint32_t lane) {
    std::uint32_t got;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(got) : "r"(word), "r"(lane));
    return got;
}
template <unsigned distance>
__device__ __forceinline__ std::uint32_t from_lane_xor(std::uint32_t word) {
    std::uint32_t got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(got) : "r"(word), "n"(distance));
    return got;
}
// Whether `lane` is one of a set, which has a bit for each lane.
__device__ __forceinline__ bool in_lanes(std::uint32_t lanes, std::uint32_t lane) {
    return lanes >> lane & 1;
}
__device__ __forceinline__ void swap_if(bool swap, std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t first = swap ? b : a;
    b = swap ? a : b;
    a = first;
}

// Conversions: packed words of the target, then those of the source, first values in low bits. To
// nearest is to nearest even; to fp8 what is larger than the largest finite value becomes that.
#define PIPELINK_FROM_F32(name, instruction)                                                    \
    __device__ __forceinline__ void name(std::uint32_t& to, std::uint32_t a, std::uint32_t b) { \
        asm(instruction " %0, %2, %1;" : "=r"(to) : "r"(a), "r"(b));                            \
    }
PIPELINK_FROM_F32(f32_to_bf16, "cvt.rn.bf16x2.f32")
PIPELINK_FROM_F32(f32_to_bf16_toward_zero, "cvt.rz.bf16x2.f32")
PIPELINK_FROM_F32(f32_to_f16, "cvt.rn.f16x2.f32")
PIPELINK_FROM_F32(f32_to_f16_toward_zero, "cvt.rz.f16x2.f32")
#undef PIPELINK_FROM_F32

__device__ __forceinline__ void bf16_to_f32(std::uint32_t& a, std::uint32_t& b,
                                            std::uint32_t from) {
    a = from << 16;
    b = from & 0xffff0000u;
}
__device__ __forceinline__ void f16_to_f32(std::uint32_t& a, std::uint32_t& b, std::uint32_t from) {
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}"
        : "=r"(a), "=r"(b)
        : "r"(from));
}
#define PIPELINK_THROUGH_F32(name, widen, narrow)                                 \
    __device__ __forceinline__ void name(std::uint32_t& to, std::uint32_t from) { \
        std::uint32_t a, b;                                                       \
        widen(a, b, from);                                                        \
        narrow(to, a, b);                                                         \
    }
PIPELINK_THROUGH_F32(bf16_to_f16, bf16_to_f32, f32_to_f16)
PIPELINK_THROUGH_F32(bf16_to_f16_toward_zero, bf16_to_f32, f32_to_f16_toward_zero)
PIPELINK_THROUGH_F32(f16_to_bf16, f16_to_f32, f32_to_bf16)
PIPELINK_THROUGH_F32(f16_to_bf16_toward_zero, f16_to_f32, f32_to_bf16_toward_zero)
#undef PIPELINK_THROUGH_F32

#define PIPELINK_FP8(type)                                                                       \
    __device__ __forceinline__ void f32_to_##type(                                               \
        std::uint32_t& to, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) { \
        asm("{\n"                                                                                \
            ".reg .b16 low, high;\n"                                                             \
            "cvt.rn.satfinite." #type                                                            \
            "x2.f32 low, %2, %1;\n"                                                              \
            "cvt.rn.satfinite." #type                                                            \
            "x2.f32 high, %4, %3;\n"                                                             \
            "mov.b32 %0, {low, high};\n"                                                         \
            "}"                                                                                  \
            : "=r"(to)                                                                           \
            : "r"(a), "r"(b), "r"(c), "r"(d));                                                   \
    }                                                                                            \
    __device__ __forceinline__ void f16_to_##type(std::uint32_t& to, std::uint32_t a,            \
                                                  std::uint32_t b) {                             \
        asm("{\n"                                                                                \
            ".reg .b16 low, high;\n"                                                             \
            "cvt.rn.satfinite." #type                                                            \
            "x2.f16x2 low, %1;\n"                                                                \
            "cvt.rn.satfinite." #type                                                            \
            "x2.f16x2 high, %2;\n"                                                               \
            "mov.b32 %0, {low, high};\n"                                                         \
            "}"                                                                                  \
            : "=r"(to)                                                                           \
            : "r"(a), "r"(b));                                                                   \
    }                                                                                            \
    __device__ __forceinline__ void type##_to_f16(std::uint32_t& a, std::uint32_t& b,            \
                                                  std::uint32_t from) {                          \
        asm("{\n"                                                                                \
            ".reg .b16 low, high;\n"                                                             \
            "mov.b32 {low, high}, %2;\n"                                                         \
            "cvt.rn.f16x2." #type                                                                \
            "x2 %0, low;\n"                                                                      \
            "cvt.rn.f16x2." #type                                                                \
            "x2 %1, high;\n"                                                                     \
            "}"                                                                                  \
            : "=r"(a), "=r"(b)                                                                   \
            : "r"(from));                                                                        \
    }                                                                                            \
    __device__ __forceinline__ void bf16_to_##type(std::uint32_t& to, std::uint32_t from,        \
                                                   std::uint32_t next) {                         \
        std::uint32_t a, b, c, d;                                                                \
        bf16_to_f32(a, b, from);                                                                 \
        bf16_to_f32(c, d, next);                                                                 \
        f32_to_##type(to, a, b, c, d);                                                           \
    }                                                                                            \
    __device__ __forceinline__ void type##_to_f32(std::uint32_t& a, std::uint32_t& b,            \
                                                  std::uint32_t& c, std::uint32_t& d,            \
                                                  std::uint32_t from) {                          \
        std::uint32_t low, high;                                                                 \
        type##_to_f16(low, high, from);                                                          \
        f16_to_f32(a, b, low);                                                                   \
        f16_to_f32(c, d, high);                                                                  \
    }                                                                                            \
    __device__ __forceinline__ void type##_to_bf16(std::uint32_t& a, std::uint32_t& b,           \
                                                   std::uint32_t from) {                         \
        std::uint32_t low, high;                                                                 \
        type##_to_f16(low, high, from);                                                          \
        f16_to_bf16(a, low);                                                                     \
        f16_to_bf16(b, high);                                                                    \
    }
// Targets before sm_89 have no conversions of fp8.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
PIPELINK_FP8(e4m3)
PIPELINK_FP8(e5m2)
__device__ __forceinline__ void e4m3_to_e5m2(std::uint32_t& to, std::uint32_t from) {
    std::uint32_t low, high;
    e4m3_to_f16(low, high, from);
    f16_to_e5m2(to, low, high);
}
__device__ __forceinline__ void e5m2_to_e4m3(std::uint32_t& to, std::uint32_t from) {
    std::uint32_t low, high;
    e5m2_to_f16(low, high, from);
    f16_to_e4m3(to, low, high);
}
#endif
#undef PIPELINK_FP8

}  // namespace format2
}  // namespace pipelink
