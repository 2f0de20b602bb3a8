// Element types, and what a contract calls them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <pipelink/text.cuh>

namespace pipelink {
inline namespace format2 {

using bf16 = __nv_bfloat16;
using f16 = __half;
using e4m3 = __nv_fp8_e4m3;
using e5m2 = __nv_fp8_e5m2;

template <class T>
struct ElementName;
#define PIPELINK_ELEMENT(type, text_)      \
    template <>                            \
    struct ElementName<type> {             \
        static constexpr Name name{text_}; \
    };
PIPELINK_ELEMENT(bf16, "bf16")
PIPELINK_ELEMENT(f16, "f16")
PIPELINK_ELEMENT(float, "f32")
PIPELINK_ELEMENT(int, "i32")
PIPELINK_ELEMENT(e4m3, "e4m3")
PIPELINK_ELEMENT(e5m2, "e5m2")
PIPELINK_ELEMENT(signed char, "i8")
PIPELINK_ELEMENT(unsigned char, "u8")
PIPELINK_ELEMENT(long long, "i64")
#undef PIPELINK_ELEMENT

template <class T>
inline constexpr Name element_name = ElementName<T>::name;

}  // namespace format2
}  // namespace pipelink
