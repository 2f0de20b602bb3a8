// The transfers of bench/bandwidth.py by hand: a tile of 64x64 in four warps, whose rows of 128
// bytes are swizzled by their number modulo 8. Steps are those of the components.
#include <cstdint>

#include "blocks.cuh"
#include "steps.cuh"

using bandwidth::fill;
using bandwidth::fold;
using bandwidth::look;
using bandwidth::make;
using bandwidth::touch;

extern __shared__ __align__(1024) unsigned char arena[];

namespace {

struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

constexpr unsigned tile_bytes = 8192;

__device__ __forceinline__ unsigned shared_base() {
    return static_cast<unsigned>(__cvta_generic_to_shared(arena));
}
// Where a lane's row of 16 bytes is for the four matrices of columns 0 to 15 of its warp's 16 rows;
// those of columns 16k on are at `^ k * 32`.
__device__ __forceinline__ unsigned matrix_row(unsigned thread) {
    const unsigned lane = thread % 32;
    return thread / 32 * 2048 + lane % 16 * 128 + ((lane / 16 ^ lane % 8) * 16);
}
// Where a thread's 16 bytes are, eight threads a row; 16 rows on are at `+ 2048`.
__device__ __forceinline__ unsigned chunk(unsigned thread) {
    return thread / 8 * 128 + ((thread % 8 ^ thread / 8 % 8) * 16);
}

__device__ __forceinline__ unsigned narrow(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
__device__ __forceinline__ void narrow(unsigned (&to)[16], const float (&from)[32]) {
#pragma unroll
    for (unsigned v = 0; v < 16; ++v) to[v] = narrow(from[2 * v], from[2 * v + 1]);
}

__device__ __forceinline__ void stmatrix(unsigned row, const unsigned* words) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}
__device__ __forceinline__ void ldmatrix(unsigned row, unsigned* words) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned row, unsigned* words) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void load4(unsigned address, unsigned* words) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void store_tile(unsigned row, const unsigned (&words)[16]) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) stmatrix(row ^ k * 32, words + 4 * k);
}
__device__ __forceinline__ void load_tile(unsigned row, unsigned (&words)[16]) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) ldmatrix(row ^ k * 32, words + 4 * k);
}

// --- mbarriers

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
}
__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The warp has filled or read a stage.
__device__ __forceinline__ void arrive_warp(unsigned barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
}

// Stages behind one another, then their full and their empty barriers.
template <unsigned stages>
struct Pipeline {
    unsigned base, stage = 0, phase = 0;
    __device__ __forceinline__ explicit Pipeline(unsigned at) : base(at) {}
    __device__ __forceinline__ unsigned tile() const { return base + stage * tile_bytes; }
    __device__ __forceinline__ unsigned full() const {
        return base + stages * tile_bytes + stage * 8;
    }
    __device__ __forceinline__ unsigned empty() const { return full() + stages * 8; }
    __device__ __forceinline__ void init(unsigned producers, unsigned consumers) const {
        if (threadIdx.x == 0) {
            for (unsigned n = 0; n < stages; ++n) {
                barrier_init(full() + n * 8, producers);
                barrier_init(empty() + n * 8, consumers);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
    }
    __device__ __forceinline__ void acquire() const { barrier_wait(empty(), phase ^ 1); }
    __device__ __forceinline__ void wait() const { barrier_wait(full(), phase); }
    __device__ __forceinline__ void next() {
        if (++stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

}  // namespace

#define KERNEL(name, threads) \
    extern "C" __global__ void __launch_bounds__(threads, BLOCKS) hand_##name
#define TILES for (int index = 0, row; bandwidth::numbered(index, row, m); ++index)

KERNEL(registers, 128)(const unsigned char*, int* y, int m, int c) {
    TILES {
        float values[32];
        unsigned words[16];
        make<32>(values, row, threadIdx.x);
        narrow(words, values);
        fold<16>(words, y, row, threadIdx.x, c);
    }
}

// An operand of mma to pairs: lane a + 8 * b gets columns 2a and 2a + 1 of rows b, b + 4, b + 8 and
// b + 12 of each 16x16. A lane sends its left or right half first, by which of two lanes asks for
// it.
KERNEL(shuffled, 128)(const unsigned char*, int* y, int m, int c) {
    const unsigned lane = threadIdx.x % 32;
    const bool low = lane & 16, right = lane & 4;
    const unsigned first = lane % 4 + lane / 8 * 4 + (right ? 16 : 0);
    TILES {
        unsigned words[16], got[16];
        make<16>(words, row, threadIdx.x);
#pragma unroll
        for (unsigned v = 0; v < 16; v += v % 4 ? 3 : 1) {  // rows 0 to 7, then 8 to 15
            const unsigned left_word = words[v], right_word = words[v + 2];
            const unsigned a = __shfl_sync(~0u, low ? right_word : left_word, first);
            const unsigned b = __shfl_sync(~0u, low ? left_word : right_word, first ^ 16);
            const unsigned at = v % 4 ? v + 1 : v;
            got[at] = right ? b : a;
            got[at + 1] = right ? a : b;
        }
        fold<16>(got, y, row, threadIdx.x, c);
    }
}

KERNEL(staged, 128)(const unsigned char*, int* y, int m, int c) {
    const unsigned to = shared_base() + matrix_row(threadIdx.x);
    const unsigned from = shared_base() + chunk(threadIdx.x);
    TILES {
        unsigned words[16], got[16];
        make<16>(words, row, threadIdx.x);
        __syncthreads();
        store_tile(to, words);
        __syncthreads();
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) load4(from + n * 2048, got + 4 * n);
        fold<16>(got, y, row, threadIdx.x, c);
    }
}

KERNEL(stored, 128)(const unsigned char*, int* y, int m, int c) {
    const unsigned to = shared_base() + matrix_row(threadIdx.x);
    TILES {
        float values[32];
        unsigned words[16];
        make<32>(values, row, threadIdx.x);
        narrow(words, values);
        __syncthreads();
        store_tile(to, words);
        __syncthreads();
        look(shared_base(), y, row, threadIdx.x, c);
    }
}

KERNEL(loaded, 128)(const unsigned char*, int* y, int m, int c) {
    const unsigned from = shared_base() + matrix_row(threadIdx.x);
    TILES {
        unsigned words[16];
        __syncthreads();
        touch(shared_base(), row, threadIdx.x, 1);
        __syncthreads();
        load_tile(from, words);
        fold<16>(words, y, row, threadIdx.x, c);
    }
}

KERNEL(copied, 128)(const unsigned char*, int* y, int m, int c) {
    const unsigned source = shared_base() + tile_bytes, target = shared_base();
    const unsigned from = source + threadIdx.x * 16, to = target + chunk(threadIdx.x);
    TILES {
        unsigned words[16];
        touch(source, row, threadIdx.x, 1);
        __syncthreads();
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) load4(from + n * 2048, words + 4 * n);
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) {
            bandwidth::put4(to + n * 2048, words[4 * n], words[4 * n + 1], words[4 * n + 2],
                            words[4 * n + 3]);
        }
        __syncthreads();
        look(target, y, row, threadIdx.x, c);
    }
}

// A warp turns 16 rows: of the source, two chunks of each of 64 columns.
KERNEL(turned, 128)(const unsigned char*, int* y, int m, int c) {
    const unsigned source = shared_base() + tile_bytes, target = shared_base();
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned from = source + lane * 128 + ((warp * 2 ^ lane % 8) * 16);
    const unsigned to = target + warp * 2048 + lane % 8 * 128 + ((lane / 8 ^ lane % 8) * 16);
    TILES {
        unsigned words[16];
        touch(source, row, threadIdx.x, 1);
        __syncthreads();
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) {  // columns from 32 * (n / 2), rows from 8 * (n % 2)
            ldmatrix_trans((from ^ n % 2 * 16) + n / 2 * 4096, words + 4 * n);
        }
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) {
            stmatrix((to ^ n / 2 * 64) + n % 2 * 1024, words + 4 * n);
        }
        __syncthreads();
        look(target, y, row, threadIdx.x, c);
    }
}

KERNEL(ring, 256)(const unsigned char*, int* y, int m, int c) {
    Pipeline<3> pipe(shared_base());
    pipe.init(4, 4);
    if (threadIdx.x < 128) {
        TILES {
            pipe.acquire();
            fill(pipe.tile(), row, threadIdx.x);
            arrive_warp(pipe.full());
            pipe.next();
        }
    } else {
        TILES {
            pipe.wait();
            look(pipe.tile(), y, row, threadIdx.x - 128, c);
            arrive_warp(pipe.empty());
            pipe.next();
        }
    }
}

KERNEL(tma, 160)
(const unsigned char*, const __grid_constant__ TensorMap x, int* y, int m, int c) {
    Pipeline<3> pipe(shared_base());
    pipe.init(1, 4);
    if (threadIdx.x >= 32) {
        TILES {
            pipe.wait();
            look(pipe.tile(), y, row, threadIdx.x - 32, c);
            arrive_warp(pipe.empty());
            pipe.next();
        }
    } else if (bandwidth::elected()) {
        TILES {
            pipe.acquire();
            asm volatile(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(pipe.full()),
                "r"(tile_bytes)
                : "memory");
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%2, %3}], [%4];" ::"r"(pipe.tile()),
                "l"(&x), "r"(0), "r"(row % 16 * 64), "r"(pipe.full())
                : "memory");
            pipe.next();
        }
    }
}

KERNEL(broadcast, 384)(const unsigned char*, int* y0, int* y1, int m, int c) {
    Pipeline<2> pipe(shared_base());
    pipe.init(4, 8);
    if (threadIdx.x < 128) {
        TILES {
            pipe.acquire();
            touch(pipe.tile(), row, threadIdx.x, 2);
            arrive_warp(pipe.full());
            pipe.next();
        }
    } else if (threadIdx.x < 256) {
        TILES {
            pipe.wait();
            look(pipe.tile(), y0, row, threadIdx.x - 128, c);
            arrive_warp(pipe.empty());
            pipe.next();
        }
    } else {
        const unsigned thread = threadIdx.x - 256, from = matrix_row(thread);
        TILES {
            unsigned words[16];
            pipe.wait();
            load_tile(pipe.tile() + from, words);
            arrive_warp(pipe.empty());
            fold<16>(words, y1, row, thread, c);
            pipe.next();
        }
    }
}

KERNEL(handed, 256)(const unsigned char*, int* y, int m, int c) {
    Pipeline<2> pipe(shared_base());
    pipe.init(4, 4);
    if (threadIdx.x < 128) {
        const unsigned to = matrix_row(threadIdx.x);
        TILES {
            float values[32];
            unsigned words[16];
            make<32>(values, row, threadIdx.x);
            narrow(words, values);
            pipe.acquire();
            store_tile(pipe.tile() + to, words);
            arrive_warp(pipe.full());
            pipe.next();
        }
    } else {
        TILES {
            pipe.wait();
            look(pipe.tile(), y, row, threadIdx.x - 128, c);
            arrive_warp(pipe.empty());
            pipe.next();
        }
    }
}
