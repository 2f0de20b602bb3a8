"""What can't link, or links and is refused: each gate by name, on real objects."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelink import driver
from pipelink.cli import main

ROOT = Path(__file__).parents[1]
KERNELS = Path(__file__).parent / "kernels"
FFN = ROOT / "components" / "ffn"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, so that every path in a message is short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compile_(source, *flags):
    assert main(["compile", str(source), "-o", f"{Path(source).stem}.o", "--arch", "sm_90a", *flags]) == 0


def manifest(component, outputs="y"):
    text = (KERNELS / "reverse.kernel.toml").read_text()
    text = text.replace("reverse.o", f"{component}.o").replace("reverse_tiles", f"{component}_kernel")
    lines = [row for row in text.splitlines() if outputs != "y" or not row.startswith("x =")]
    Path("k.kernel.toml").write_text("\n".join(lines))


def refusal(capsys, *arguments):
    """The diagnostic of a link that must fail for one reason, and the proof that it left nothing."""
    capsys.readouterr()
    before = sorted(os.listdir())
    assert main(["link", "k.kernel.toml", "-o", "k.cubin", *arguments]) == 1
    assert sorted(os.listdir()) == before
    said = capsys.readouterr().err
    assert re.search(r"\n\npipelink: \d errors?\n\Z", said)
    return said[: said.rindex("\npipelink: ")]


def test_a_binding_that_can_not_fold_is_refused_by_name(folder, capsys):
    compile_(KERNELS / "unfolded.cu")
    manifest("unfolded")
    assert refusal(capsys) == (
        "error[PL040]: a binding in 'unfolded_kernel' did not fold to a constant\n"
        "  --> k.kernel.toml:1\n"
        "   |\n"
        ' 1 | kernel = "unfolded_kernel"\n'
        "  = note: an instance number or slot is known at run time only, or a call not inlined\n"
        "  = note: or the code uses a fact, claim or port that its contract does not list\n"
        "  = help: list what the code uses in pl::contract; pass `self` as it came; keep functions inline\n"
    )


def test_a_contract_that_differs_between_host_and_device_is_refused_by_name(folder, capsys):
    compile_(KERNELS / "two_faced.cu")
    manifest("two_faced")
    assert refusal(capsys) == (
        "error[PL041]: the contract of two_faced of test-team is another one in the device pass "
        "than in the host pass\n"
        "  --> k.kernel.toml:1\n"
        "   |\n"
        ' 1 | kernel = "two_faced_kernel"\n'
        "  = help: let no value of a contract depend on __CUDA_ARCH__, and relink with a fresh plan\n"
    )


def test_stack_bytes_that_no_contract_declares_are_refused(folder, capsys):
    compile_(KERNELS / "stacked.cu")
    manifest("stacked")
    assert refusal(capsys) == (
        "error[PL044]: 'stacked_kernel' uses 256 stack bytes a thread and spills 0 bytes, "
        "its contracts declare 0\n"
        "  --> k.kernel.toml:1\n"
        "   |\n"
        ' 1 | kernel = "stacked_kernel"\n'
        "  = help: claim more registers, choose smaller tiles, or declare the bytes with claims_stack\n"
    )


def test_declared_stack_bytes_link(folder):
    compile_(KERNELS / "stacked.cu", "-D", "STACK_BYTES=256")
    manifest("stacked")
    assert main(["link", "k.kernel.toml", "-o", "k.cubin"]) == 0


def test_an_entry_that_its_source_does_not_define_is_refused_by_name(folder, capsys):
    source = (KERNELS / "reverse.cu").read_text()
    Path("reverse.cu").write_text(source.replace("PIPELINK_ENTRY(reverse, run)", "__device__ void unused"))
    compile_("reverse.cu")
    manifest("reverse", "xy")
    lines = refusal(capsys).splitlines()
    assert lines[0] == "error[PL042]: nobody defines 'pipelink__reverse__run'"
    assert lines[-1] == "  = help: define PIPELINK_ENTRY(reverse, run) in its source"


def ffn(**changed):
    """The ffn components in this folder, some with changed text."""
    shutil.copy(FFN / "wgmma.cuh", "wgmma.cuh")
    for name in ("loader", "mainloop", "epilogue"):
        source = (FFN / f"{name}.cu").read_text()
        for old, new in changed.get(name, ()):
            assert old in source
            source = source.replace(old, new)
        Path(f"{name}.cu").write_text(source)
        compile_(f"{name}.cu")
    manifest = (FFN / "ffn.kernel.toml").read_text().replace("components/ffn/", "")
    Path("k.kernel.toml").write_text(manifest)


def test_a_printf_that_serialises_wgmma_is_a_link_error(folder, capsys):
    wait = "        in.wait(self, state);"
    include = '#include "wgmma.cuh"'
    printing = [(wait, wait + ' printf("%d", step);'), (include, "#include <cstdio>\n" + include)]
    ffn(mainloop=printing)
    assert refusal(capsys).splitlines()[:2] == [
        "error[PL043]: the link of 'ffn' broke (C7510)",
        "  --> k.kernel.toml:2",
    ]


def test_registers_that_the_code_can_not_keep_are_a_link_error(folder, capsys):
    """ptxas then ignores setmaxnreg, says so in its log (C7507), and links."""
    fewer = [("72_n + rows * tile_n / 128_n", "64_n"), ("40_n + rows * tile_n / 128_n", "64_n")]
    ffn(mainloop=fewer[:1], epilogue=fewer[1:])
    assert refusal(capsys).splitlines()[:5] == [
        "error[PL043]: the link of 'ffn' broke (C7507)",
        "  --> k.kernel.toml:2",
        "   |",
        ' 2 | kernel = "ffn"',
        (
            "  = note: ptxas info    : (C7507) Potential Performance Loss: 'setmaxnreg' ignored to "
            "maintain minimum register requirements."
        ),
    ]


def test_a_block_barrier_in_one_of_several_roles_is_refused(folder, capsys):
    """256 of 384 threads would wait for the others for ever."""
    first = "    const unsigned thread = pl::role_thread(self);"
    ffn(epilogue=[(first, "    __syncthreads();\n" + first)])
    assert refusal(capsys) == (
        "error[PL045]: the cubin of 'ffn' is not as planned: it has 1 __syncthreads() in a kernel of 2 "
        "roles, where it waits for threads that never come; use claims_barrier\n"
        "  --> k.kernel.toml:2\n"
        "   |\n"
        ' 2 | kernel = "ffn"\n'
    )


def test_a_barrier_that_nobody_claims_is_refused(folder, capsys):
    source = (KERNELS / "reverse.cu").read_text()
    old = "written.sync(self);"
    new = old + ' asm volatile("barrier.sync 7, 64;");'
    Path("reverse.cu").write_text(source.replace(old, new, 1))
    compile_("reverse.cu")
    manifest("reverse", "xy")
    assert refusal(capsys).splitlines()[0] == (
        "error[PL045]: the cubin of 'reverse_kernel' is not as planned: it uses named barrier 7 for "
        "64 threads, which no contract claims ('r.written' has 1); use claims_barrier"
    )


def test_a_barrier_of_another_number_of_threads_is_refused(folder, capsys):
    source = (KERNELS / "reverse.cu").read_text()
    old = "written.sync(self);"
    new = old + ' asm volatile("barrier.sync 1, 64;");'
    Path("reverse.cu").write_text(source.replace(old, new, 1))
    compile_("reverse.cu")
    manifest("reverse", "xy")
    assert "it uses named barrier 1 for 64 threads, which no contract claims" in refusal(capsys)


def test_static_shared_memory_is_refused(folder, capsys):
    source = (KERNELS / "reverse.cu").read_text()
    old = "written.sync(self);"
    new = "__shared__ volatile int own[64]; own[thread % 64] = at; " + old + " if (own[0] == 12345) return;"
    Path("reverse.cu").write_text(source.replace(old, new, 1))
    assert main(["compile", "reverse.cu", "-o", "reverse.o", "--arch", "sm_90a"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error[PL046]: 'pipelink__reverse__run::own' is shared memory that no contract claims\n"
        "  --> reverse.cu:"
    )


def test_an_object_of_another_contract_than_the_plan_is_refused(folder, capsys):
    compile_(KERNELS / "reverse.cu")
    manifest("reverse", "xy")
    assert main(["plan", "k.kernel.toml", "--objects", ".", "-o", "k.plan.json"]) == 0
    assert main(["render", "k.plan.json", "-o", "k.glue.cu"]) == 0
    assert main(["compile", "--glue", "k.glue.cu", "-o", "k.fatbin", "--arch", "sm_90a"]) == 0
    Path("reverse.cu").write_text((KERNELS / "reverse.cu").read_text().replace("1.0.0", "1.0.1"))
    compile_("reverse.cu")
    assert refusal(capsys, "--plan", "k.plan.json", "--glue", "k.fatbin") == (
        "error[PL008]: the plan of 'reverse_kernel' was made with another contract of reverse of "
        "test-team than the one in reverse.o\n"
        "  --> reverse.o\n"
        "  = help: make the plan anew\n"
    )


def test_a_stale_glue_does_not_link_even_where_the_plan_is_fresh(folder, capsys):
    """The device code's own fingerprint holds the glue, whatever the plan says."""
    compile_(KERNELS / "reverse.cu")
    manifest("reverse", "xy")
    for call in (
        ["plan", "k.kernel.toml", "-o", "k.plan.json"],
        ["render", "k.plan.json", "-o", "k.glue.cu"],
        ["compile", "--glue", "k.glue.cu", "-o", "k.fatbin", "--arch", "sm_90a"],
    ):
        assert main(call) == 0
    Path("reverse.cu").write_text((KERNELS / "reverse.cu").read_text().replace("1.0.0", "1.0.1"))
    compile_("reverse.cu")
    assert main(["plan", "k.kernel.toml", "-o", "k.plan.json"]) == 0
    found = refusal(capsys, "--plan", "k.plan.json", "--glue", "k.fatbin").splitlines()
    assert found[0].startswith("error[PL041]: the contract of reverse of test-team is another one")


def test_objects_of_another_floating_point_mode_are_refused(folder, capsys):
    compile_(KERNELS / "reverse.cu")
    source = (KERNELS / "reverse.cu").read_text().replace("reverse", "other")
    Path("other.cu").write_text(source)
    compile_("other.cu", "--ftz")
    text = (KERNELS / "reverse.kernel.toml").read_text().replace('"r.run"', '"r.run", "o.run"')
    text = text.replace("[[roles]]", '[instances.o]\nobject = "other.o"\n\n[[roles]]')
    Path("k.kernel.toml").write_text(text + 'z = "o.y"\nw = "o.x"\n')
    assert refusal(capsys).splitlines()[0] == (
        "error[PL025]: other of test-team (instance 'o') was built with floating-point mode "
        "'ftz=1 div=1 sqrt=1 fma=1', reverse of test-team (instance 'r') with 'ftz=0 div=1 sqrt=1 fma=1'"
    )


def test_a_reproducer_relinks_to_the_same_bytes_elsewhere(folder, tmp_path, monkeypatch):
    compile_(KERNELS / "reverse.cu")
    manifest("reverse", "xy")
    Path("above").mkdir()
    Path("above/v.kernel.toml").write_text(
        'extends = "../k.kernel.toml"\nkernel = "reverse_kernel"\n'
    )
    link = ["link", "above/v.kernel.toml", "--objects", "."]
    assert main([*link, "-o", "k.cubin", "--reproduce", "k.tar"]) == 0
    shutil.unpack_archive("k.tar", "elsewhere")
    monkeypatch.chdir("elsewhere/reverse_kernel")
    words = Path("command.txt").read_text().split()
    assert main(words[1:]) == 0
    assert Path("reverse_kernel.cubin").read_bytes() == (tmp_path / "k.cubin").read_bytes()


def test_map_and_check_write_nothing(folder):
    compile_(KERNELS / "reverse.cu")
    manifest("reverse", "xy")
    before = sorted(os.listdir())
    for call in ("check", "map", "verify"):
        assert main([call, "k.kernel.toml"]) == 0
    assert sorted(os.listdir()) == before


def test_the_metadata_says_what_was_linked(folder):
    compile_(KERNELS / "reverse.cu")
    manifest("reverse", "xy")
    assert main(["link", "k.kernel.toml", "-o", "k.cubin"]) == 0
    plan = driver.read_plan(Path("k.plan.json"))
    assert [(r.name, r.offset, r.bytes) for r in plan.regions] == [("r.staging", 0, 512)]
    assert [(m.name, m.offset, m.arrivals) for m in plan.mbarriers] == [("r.read", 512, 128)]
    assert [(b.name, b.id, b.threads) for b in plan.barriers] == [("written", 1, 128)]


def test_a_function_that_two_owners_define_is_refused_with_both_objects(folder, capsys):
    helper = '__device__ __noinline__ float helper(float x) { return x; }\n'
    include = "#include <pipelink/component.cuh>\n"
    names = ("writer", "reader")
    for name in names:
        text = (KERNELS / f"{name}.cu").read_text()
        Path(f"{name}.cu").write_text(text.replace(include, include + helper))
        shutil.copy(KERNELS / "route.cuh", "route.cuh")
        assert main(["compile", f"{name}.cu", "-o", f"{name}.o", "--arch", "sm_90a"]) == 0
    text = (KERNELS / "hand_over.kernel.toml").read_text()
    Path("k.kernel.toml").write_text(text.replace("tests/kernels/", ""))
    said = refusal(capsys)
    assert said.startswith(
        "error[PL042]: function 'helper(float)' is defined by writer of test-team (instance 'write') and "
        "reader of other-team (instance 'read')\n"
    )
    # An object that does not say what it defines, as one of format 1: the link finds both.
    for name in names:
        section = "--remove-section=.note.pipelink.symbols"
        subprocess.run(["objcopy", section, f"{name}.o"], check=True)
    said = refusal(capsys)
    assert said.startswith("error[PL042]: '_Z6helperf' is defined by ")
    assert sorted(re.findall(r"(\w+)\.o", said.splitlines()[0])) == ["reader", "writer"]
