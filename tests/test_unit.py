"""What is read off nvcc's device unit, on real compiles: definitions, and what a contract leaves out."""

import json
from pathlib import Path

import pytest

from pipelink import toolchain
from pipelink.unit import Unit, faults, read_unit

# The contents of a unit: everything that is named in it is used by a function that is not inline.
SHARED = """\
extern __shared__ char arena[];
template <int N>
__device__ int of_template(int i) {
    __shared__ int kept[N];
    kept[i] = i;
    __syncthreads();
    return kept[0];
}
__device__ int strong(int i) {
    extern __shared__ __align__(16) float4 inside[];
    static __shared__ float one;
    __shared__ double two, three[2];
    one = two = three[1] = i;
    return arena[i] + int(inside[i].x + one + two + three[0]) + of_template<4>(i);
}
"""
CALLS = """\
#include <cstdio>
#undef NDEBUG
#include <cassert>
extern "C" __device__ int by_hand(int);
extern "C" __device__ void pipelink__other__run(int);
extern "C" __device__ long long pipelink_bind(unsigned, unsigned long long);
namespace owner { __device__ float mangled(float); }
__device__ int not_used(int);
extern __device__ int counter;
extern __constant__ float weights[3];
__constant__ int table[4] = {1, 2, 3, 4};
__device__ int own;
extern __device__ int later;
__device__ int later = 2;
__device__ int defined_below(int);
__device__ float strong(int i) {
    printf("%d\\n", i);
    assert(i > 0);
    int* heap = new int[4];
    void* raw = malloc(4);
    memcpy(raw, heap, 4);
    free(raw);
    delete[] heap;
    pipelink__other__run(i);
    atomicAdd(&own, 1);
    float x = sinf(i) + powf(i, 2.5f) + __expf(i) + rsqrtf(i) + tgammaf(i) + float(lgamma(double(i)));
    x += __shfl_sync(~0u, i, 1) + __popc(i) + clock64() + pipelink_bind(0, 1);
    return x + by_hand(i) + owner::mangled(x) + counter + weights[i & 1] + table[i & 3] + later +
           defined_below(i);
}
__device__ int defined_below(int i) { return i; }
"""
INLINE = """\
struct Point { REAL x; int n; };
struct alignas(ALIGN) Row { float x[4]; };
using real = REAL;
struct Box { real side; };
enum Mode { first, second = SIZE };
static __device__ int internal(int i) { return i * SIZE; }
static __constant__ int table[2] = {SIZE, 1};
namespace { __device__ int unnamed(int i) { return i + SIZE; } }
inline __device__ const int weights[2] = {SIZE, 2};
inline __device__ int plain(int i) { return i + SIZE; }
inline __device__ int same(int i) { return i + __FILE__[i] + "}{"[i] + sizeof(Mode) + __popc(i); }
inline __device__ int by_internal(int i) { return internal(i); }
inline __device__ int by_table(int i) { return table[i]; }
inline __device__ int by_unnamed(int i) { return unnamed(i); }
inline __device__ int by_mode(Mode m) { Mode other = second; return m == other; }
inline __device__ int by_type(int i) { real x = i; return int(x / 3); }
template <int N>
__device__ int of_template(int i) {
    const auto add = [i](int other) { return other * SIZE + N + i; };
    return add(3);
}
__attribute__((weak)) __device__ int replaced(int i) { return i; }
__device__ int strong(int i) {
    Point p{};
    p.x = plain(i) + weights[i];
    Row r{};
    r.x[0] = i;
    Box b{};
    b.side = i;
    return p.x + r.x[1] + b.side + same(i) + by_internal(i) + by_table(i) + by_unnamed(i) +
           by_mode(second) + by_type(i) + of_template<2>(i) + replaced(i);
}
"""
LIBRARIES = """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/warp/warp_reduce.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda_fp8.h>
#include <mma.h>
namespace groups = cooperative_groups;
__device__ int counter;
inline __device__ int lanes(int i) { return __shfl_sync(~0u, i, 1) + groups::this_thread_block().size(); }
__device__ float strong(float x, int i) {
    const auto warp = groups::tiled_partition<32>(groups::this_thread_block());
    x += groups::reduce(warp, x, groups::plus<float>());
    cuda::std::array<int, 4> four{1, 2, 3, 4};
    cuda::std::complex<float> c(x, 1.0f);
    cuda::atomic_ref<int, cuda::thread_scope_device>(counter).fetch_add(1);
    typename cub::WarpReduce<float>::TempStorage storage{};
    x += cub::WarpReduce<float>(storage).Sum(x) + cuda::std::abs(c * c) + float(__nv_fp8_e4m3(x));
    return x + four[i] + lanes(i);
}
"""
BASE = ("SIZE=4", "REAL=float", "ALIGN=16")


def device_unit(path: Path, source: str, *define: str) -> Unit:
    """The unit of a source, compiled as components are."""
    texts = []

    def accept(_: bytes, text: str) -> bytes:
        texts.append(text)
        return b""

    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    options = toolchain.CompileOptions("sm_90a", define=define)
    macros = "".join(f"#define {name} {value}\n" for name, value in (d.split("=") for d in define))
    toolchain.compile_component(path, path.with_suffix(".o"), options, macros, accept)
    return read_unit(texts[0]).named(toolchain.demangled)


def named(symbols) -> list[str]:
    return sorted(symbol.shown or symbol.name for symbol in symbols)


def texts(unit: Unit) -> dict[str, str]:
    """What is compared between two objects."""
    return {s.shown or s.name: s.text for s in (*unit.weak, *unit.types)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    """The unit of INLINE as all tests begin with it."""
    return device_unit(tmp_path_factory.mktemp("unit") / "a.cu", INLINE, *BASE)


def test_shared_memory_is_found_wherever_it_stands():
    unit = device_unit(Path("a.cu"), SHARED)
    assert [(d.code, d.message, d.primary.file) for d in faults(unit)] == [
        ("PL046", f"'{name}' is shared memory that no contract claims", f"a.cu:{line}")
        for name, line in (
            ("arena", 1),
            ("inside", 10),
            ("strong(int)::one", 11),
            ("strong(int)::two", 12),
            ("strong(int)::three", 12),
            ("of_template<4>(int)::kept", 4),
        )
    ]
    base = "all `extern __shared__` arrays of a kernel have one base, that of the arena"
    assert [d.notes for d in faults(unit)] == [(base,)] * 2 + [()] * 4
    assert (named(unit.strong), named(unit.weak)) == (["strong(int)"], ["int of_template<4>(int)"])


def test_what_is_used_and_not_defined_is_found_and_no_function_of_the_toolchain():
    unit = device_unit(Path("a.cu"), CALLS)
    assert [(d.code, d.message, d.primary.file) for d in faults(unit)] == [
        ("PL047", f"'{name}' is {used}, and this object does not define it", f"a.cu:{line}")
        for name, used, line in (
            ("by_hand", "called", 4),
            ("pipelink__other__run", "called", 5),
            ("owner::mangled(float)", "called", 7),
            ("counter", "used", 9),
            ("weights", "used", 10),
        )
    ]
    assert named(unit.strong) == ["defined_below(int)", "strong(int)"]
    assert texts(unit) == {}


def test_libraries_of_the_toolkit_are_no_definitions_of_the_component():
    unit = device_unit(Path("a.cu"), LIBRARIES)
    assert list(faults(unit)) == []
    assert (named(unit.strong), named(unit.types)) == (["strong(float, int)"], [])
    assert named(unit.weak) == ["lanes(int)"]


@pytest.mark.parametrize(
    "name",
    [
        "_ZN36_INTERNAL_de060232_6_one_cu_001768956helperEi",
        "_ZN42_INTERNAL_7ab10577_6_one_cu_bc51a466_207276helperEi",
        "_ZN37_GLOBAL__N__90752f61_5_kr_cu_c3df0db36helperEi",
    ],
)
def test_the_number_of_a_unit_is_no_part_of_a_name(name):
    line = (
        "__attribute__((nv_linkonce_odr)) ___device__( __no_sc__) int f(int x){ return NAME(x); }"
    )
    bodies = [
        read_unit(f'# 1 "a.cuh"\n{line.replace("NAME", n)}\n').weak
        for n in (name, "_ZN34_INTERNAL_00000000_4_a_cu_000000006helperEi")
    ]
    assert bodies[0] == bodies[1] != []


def test_what_has_internal_linkage_is_not_listed(inline):
    assert named(inline.strong) == ["strong(int)"]
    assert named(inline.weak) == sorted(
        [
            "by_internal(int)",
            "by_mode(Mode)",
            "by_table(int)",
            "by_type(int)",
            "by_unnamed(int)",
            "int of_template<2>(int)",
            "plain(int)",
            "replaced(int)",
            "same(int)",
            "weights",
        ]
    )
    closure = "_ZZ11of_templateILi2EEiiEUliE_"
    assert {s.name: s.text for s in inline.types} == {
        "Point": "float x; int n;",
        "Row": "float x[4]; aligned to 16;",
        "Box": "float side;",
        closure: "int i;",
    }
    assert list(faults(inline)) == []


@pytest.mark.parametrize("path", ["b.cu", "a longer name.cu", "folder/ä.cu"])
def test_a_source_of_another_name_or_folder_is_the_same(inline, path):
    assert texts(device_unit(Path(path), INLINE, *BASE)) == texts(inline)


@pytest.mark.parametrize(
    ("define", "changed"),
    [
        (
            "SIZE=5",
            {
                "by_internal(int)",
                "by_mode(Mode)",
                "by_table(int)",
                "by_unnamed(int)",
                "int of_template<2>(int)",
                "plain(int)",
                "weights",
            },
        ),
        ("REAL=double", {"Point", "Box", "by_type(int)"}),
        ("ALIGN=32", {"Row"}),
    ],
)
def test_another_define_changes_what_depends_on_it(inline, define, changed):
    name = define.split("=")[0]
    other = device_unit(Path("a.cu"), INLINE, *(d for d in BASE if not d.startswith(name)), define)
    before, after = texts(inline), texts(other)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == changed


# --- Two objects of one kernel ------------------------------------------------------------------

SHARED_HEADER = """\
struct Work { int first; COUNT count; };
__device__ int rows_of(int i) { return i; }
inline __device__ int last_of(Work w) { return w.first + int(w.count); }
"""
COMPONENT = """\
#include <pipelink/component.cuh>
#include "work.cuh"
namespace NAME {
namespace pl = pipelink;
using namespace pl::literals;
constexpr auto y = pl::array_out<"y", int>(pl::shape(64_n));
constexpr auto run = pl::entry<"run">()(pl::tile, y);
constexpr auto schedule = pl::schedule<"schedule">()();
constexpr auto contract = pl::contract<"NAME", "team", "1">(y, run, schedule);
PIPELINK_COMPONENT(NAME, contract)
PIPELINK_ENTRY(NAME, run)(pl::Self, const pl::Tile& tile, int* y) {
    y[rows_of(tile.row)] = last_of(Work{tile.row, 1});
}
PIPELINK_ENTRY(NAME, schedule)(pl::Self, int index, pl::Tile&) { return index < 1; }
}
"""
MANIFEST = """\
kernel = "two"
target = "sm_90a"
schedule = "a.schedule"
instances.a.object = "a.o"
instances.b.object = "b.o"
roles = [{ name = "all", steps = ["a.run", "b.run"] }]
parameters = { x = "a.y", y = "b.y" }
"""


def test_what_two_objects_define_is_compared(call):
    Path("work.cuh").write_text(SHARED_HEADER)
    Path("two.kernel.toml").write_text(MANIFEST)
    for name, count in (("a", "int"), ("b", "long long")):
        Path(f"{name}.cu").write_text(COMPONENT.replace("NAME", name))
        argv = (
            "compile",
            f"{name}.cu",
            "-o",
            f"{name}.o",
            "--arch",
            "sm_90a",
            "-D",
            f"COUNT={count}",
        )
        assert call(*argv) == (0, "", "")
    done = call("check", "two.kernel.toml", "--format", "json")
    both = "a of team (instance 'a') and b of team (instance 'b')"
    assert [
        (d["code"], d["message"], d["places"][0]["file"], d["places"][0]["line"])
        for d in json.loads(done.out)["diagnostics"]
    ] == [
        ("PL042", f"function 'rows_of(int)' is defined by {both}", "work.cuh", 2),
        (
            "PL018",
            f"type 'Work' is not the same in {both}: 'int count' in the first, 'long long count' in the second",
            "work.cuh",
            1,
        ),
    ]
