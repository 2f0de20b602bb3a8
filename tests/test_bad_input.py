"""Input that is at fault: the whole message, the exit code, and that nothing was left behind."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import FFN, ROOT, files
from contracts import ALL, add, change, drop
from minimal_elf import CORRUPT, corrupt_files
from msgspec.structs import replace

from pipelink import driver
from pipelink.abi import Claim

DAMAGED = "the contract's note is damaged"
NO_CONTRACT = "  = help: state one with PIPELINK_COMPONENT and compile it with `pipelink compile`\n"


@pytest.fixture
def refused(toy, call):
    """Calls with the toy kernel's objects in place; the input must be at fault. Returns stderr without
    the count of errors, which must be right."""

    def refused(*argv, prepare=lambda: None):
        toy.objects()
        prepare()
        before = files()
        done = call(*argv)
        assert (done.code, done.out) == (1, "")
        assert files() == before
        text, _, count = done.err.rpartition("\n\n")
        errors = f"{text}\n".count("error[")
        assert count == f"pipelink: {errors} error{'s' if errors > 1 else ''}\n"
        return f"{text}\n"

    return refused


LINK = ("link", "toy.kernel.toml", "-o", "toy.cubin")


def test_the_corrupt_files_are_those_that_the_script_makes():
    assert {p.name: p.read_bytes() for p in CORRUPT.iterdir()} == corrupt_files()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.o", "error[PL001]: text.o is no component: it is not an ELF file"),
        ("header.o", "error[PL001]: header.o is no component: its ELF header is damaged"),
        (
            "truncated.o",
            "error[PL001]: truncated.o is no component: its sections are truncated or damaged",
        ),
        (
            "archive.o",
            "error[PL001]: archive.o is no component: it is an archive; name one of its objects",
        ),
        ("no_code.o", "error[PL001]: no_code.o has a contract and no device code"),
        (
            "two_contracts.o",
            "error[PL003]: two_contracts.o has 2 contracts, one object holds one component",
        ),
        ("bad_json.o", f"error[PL003]: bad_json.o: {DAMAGED}: Input data was truncated"),
        ("not_utf8.o", f"error[PL003]: not_utf8.o: {DAMAGED}: Invalid UTF-8 encoded string"),
        (
            "wrong_type.o",
            f"error[PL003]: wrong_type.o: {DAMAGED}: Expected `array`, got `int` - at `$.toolchain`",
        ),
        (
            "unknown_field.o",
            f"error[PL003]: unknown_field.o: {DAMAGED}: Object contains unknown field `ovner`",
        ),
        ("cut_off.o", "error[PL001]: cut_off.o is no component: a note is cut off"),
        (
            "huge_description.o",
            "error[PL001]: huge_description.o is no component: a note is cut off",
        ),
        (
            "huge_section.o",
            (
                "error[PL001]: huge_section.o is no component: .note.pipelink has 1099511627776 bytes, "
                "1048576 at most"
            ),
        ),
        (
            "long_section.o",
            "error[PL001]: long_section.o is no component: its sections are truncated or damaged",
        ),
        (
            "compressed.o",
            "error[PL001]: compressed.o is no component: .note.pipelink is compressed",
        ),
        (
            "no_note_section.o",
            "error[PL001]: no_note_section.o is no component: .note.pipelink is not a note section",
        ),
        (
            "damaged_places.o",
            f"error[PL003]: damaged_places.o: {DAMAGED}: Object missing required field `component`",
        ),
    ],
)
def test_a_corrupt_object_is_refused(toy, refused, name, message):
    toy.edit('"epilogue.o"', f'"{name}"')
    text = refused(*LINK, prepare=lambda: shutil.copy(CORRUPT / name, "."))
    assert text == f"{message}\n  --> {name}\n"


def test_an_object_without_a_contract_is_refused(toy, refused):
    toy.edit('"epilogue.o"', '"no_note.o"')
    assert refused(*LINK, prepare=lambda: shutil.copy(CORRUPT / "no_note.o", ".")) == (
        "error[PL002]: no_note.o has no contract\n  --> no_note.o\n" + NO_CONTRACT
    )


def test_a_newer_contract_is_refused(toy, refused):
    toy.edit('"epilogue.o"', '"newer.o"')
    assert refused(*LINK, prepare=lambda: shutil.copy(CORRUPT / "newer.o", ".")) == (
        "error[PL004]: newer.o has a contract of format 3, this PipeLink reads up to 2\n"
        "  --> newer.o\n"
        "  = help: link it with a newer PipeLink\n"
    )


def test_a_missing_object_is_refused(refused):
    assert refused(*LINK, prepare=Path("epilogue.o").unlink) == (
        "error[PL001]: instance 'act' needs epilogue.o, which does not exist\n"
        "  --> epilogue.o\n"
        "  = help: build it first; --objects names the folder that object paths start from\n"
    )


def test_every_unreadable_object_is_named(refused):
    def prepare():
        Path("epilogue.o").unlink()
        Path("loader.o").write_bytes(b"")

    assert refused(*LINK, prepare=prepare) == (
        "error[PL001]: loader.o is no component: it is not an ELF file\n"
        "  --> loader.o\n"
        "\n"
        "error[PL001]: instance 'act' needs epilogue.o, which does not exist\n"
        "  --> epilogue.o\n"
        "  = help: build it first; --objects names the folder that object paths start from\n"
    )


def test_a_folder_is_no_object(toy, refused):
    toy.edit('"epilogue.o"', '"."')
    assert refused(*LINK) == "error[PL001]: . can't be read: is a directory\n  --> .\n"


def test_a_program_of_the_host_has_no_contract(refused):
    assert refused(*LINK, prepare=lambda: shutil.copy("/bin/true", "epilogue.o")) == (
        "error[PL002]: epilogue.o has no contract\n  --> epilogue.o\n" + NO_CONTRACT
    )


def test_an_object_of_the_host_compiler_has_no_contract(refused):
    def prepare():
        gcc = ["gcc", "-x", "c", "-c", "-", "-o", "epilogue.o"]
        subprocess.run(gcc, input=b"int f(void) { return 1; }", check=True)

    assert refused(*LINK, prepare=prepare) == (
        "error[PL002]: epilogue.o has no contract\n  --> epilogue.o\n" + NO_CONTRACT
    )


def test_one_component_in_two_objects_is_refused(toy, refused):
    toy.contracts["epilogue"] = replace(ALL["loader"], owner="others")
    assert refused(*LINK) == (
        "error[PL010]: component loader is in loader.o of data and in epilogue.o of others\n"
        "  --> epilogue.o\n"
        "  ::: loader.o\n"
        "  = help: rename one of them, or use one object for both instances\n"
    )


@pytest.mark.parametrize("call_", ["inspect", "contract"])
def test_calls_on_one_object_refuse_it_too(toy, refused, call_):
    output = ("-o", "x.contract.json") if call_ == "contract" else ()
    assert refused(call_, "missing.o", *output) == (
        "error[PL001]: missing.o can't be read: no such file or directory\n  --> missing.o\n"
    )


def test_an_unknown_arch_is_refused(toy, refused):
    argv = ("compile", "a.cu", "-o", "a.o", "--arch", "sm_91")
    assert refused(*argv, prepare=lambda: Path("a.cu").touch()) == (
        "error[PL007]: unknown target 'sm_91'\n"
        "  --> --arch\n"
        "  = help: did you mean 'sm_90a'? known targets: sm_80, sm_90a, sm_100a, sm_103a, sm_120a\n"
    )


def test_a_missing_source_is_refused(refused):
    assert refused("compile", "a.cu", "-o", "a.o", "--arch", "sm_90a") == (
        "error[PL001]: a.cu can't be read: no such file\n  --> a.cu\n"
    )


def test_an_unknown_target_is_refused(toy, refused):
    toy.edit('target = "sm_90a"', 'target = "sm_90"')
    assert refused(*LINK) == (
        "error[PL007]: unknown target 'sm_90'\n"
        "  --> toy.kernel.toml:2\n"
        "   |\n"
        ' 2 | target = "sm_90"\n'
        "  = help: did you mean 'sm_90a'? known targets: sm_80, sm_90a, sm_100a, sm_103a, sm_120a\n"
    )


def test_a_wrong_key_is_refused_with_a_suggestion(toy, refused):
    toy.edit('object = "loader.o"', 'objet = "loader.o"')
    assert refused(*LINK) == (
        "error[PL006]: unknown key 'objet' in [instances.load]\n"
        "  --> toy.kernel.toml:9\n"
        "   |\n"
        ' 9 | objet = "loader.o"\n'
        "  = help: did you mean 'object'?\n"
        "\n"
        "error[PL005]: [instances.load] has no 'object'\n"
        "  --> toy.kernel.toml (object)\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"kernel =", "Invalid value (at end of document)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_a_manifest_that_is_no_toml_is_refused(refused, text, why):
    assert refused(*LINK, prepare=lambda: Path("toy.kernel.toml").write_bytes(text)) == (
        f"error[PL005]: toy.kernel.toml is no TOML: {why}\n  --> toy.kernel.toml\n"
    )


def test_a_missing_manifest_is_refused(refused):
    assert refused("check", "none.kernel.toml") == (
        "error[PL005]: none.kernel.toml can't be read: no such file or directory\n"
        "  --> none.kernel.toml\n"
    )


def test_an_import_that_nobody_provides_is_refused_with_its_line(toy, refused):
    toy.contracts["loader"] = drop(ALL["loader"], "facts", "k_steps")
    assert refused(*LINK) == (
        "error[PL011]: nobody provides 'k_steps', which mainloop of matrix (instance 'mma') imports\n"
        "  --> mainloop.cu:14\n"
        "  = help: add an instance that provides 'k_steps', or set it in [facts] of toy.kernel.toml\n"
    )


def test_a_value_outside_of_the_declared_set_is_refused(toy, refused):
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 7 }')
    assert refused(*LINK) == (
        "error[PL013]: 'stages' = 7, and instance 'load' (loader of data) supports 2, 3, 4, 5\n"
        "  --> toy.kernel.toml:10\n"
        "   |\n"
        "10 | facts = { stages = 7 }\n"
        "  ::: loader.cu:10\n"
        "  = help: the nearest supported value is 5\n"
    )


def test_an_unknown_instance_in_a_role_is_refused(toy, refused):
    toy.edit('steps = ["load.run"]', 'steps = ["loader.run"]')
    assert refused(*LINK) == (
        "error[PL005]: role 'producer' names instance 'loader', which does not exist\n"
        "  --> toy.kernel.toml:19\n"
        "   |\n"
        '19 | steps = ["loader.run"]\n'
        "  = help: did you mean 'load'?\n"
    )


def test_a_port_without_a_channel_is_refused(toy, refused):
    toy.edit('[[channels]]\nfrom = "mma.acc"\nto = "act.acc"\n', "")
    assert refused(*LINK) == (
        "error[PL022]: port 'mma.acc' of mainloop of matrix (instance 'mma') has no channel\n"
        "  --> mainloop.cu:41\n"
        "  = help: add [[channels]] to it in toy.kernel.toml\n"
        "\n"
        "error[PL022]: port 'act.acc' of epilogue of activation (instance 'act') has no channel\n"
        "  --> epilogue.cu:40\n"
        "  = help: add [[channels]] from it in toy.kernel.toml\n"
    )


def test_roles_that_pass_the_register_pool_are_refused(toy, refused):
    toy.contracts["loader"] = change(ALL["loader"], "claims", "registers", amount="48")
    assert refused(*LINK) == (
        "error[PL031]: the roles claim 65536 registers, the pool has 64512: "
        "128 x 48 (producer) + 256 x 232 (math)\n"
        "  --> loader.cu:31: 48 registers a thread\n"
        "  ::: mainloop.cu:31: 232 registers a thread\n"
        "  ::: loader.cu:30: 128 threads of 'load'\n"
        "  ::: mainloop.cu:30: 256 threads of 'mma'\n"
        "  ::: epilogue.cu:30: 256 threads of 'act'\n"
        "  = note: a launch of 384 threads has 168 each\n"
        "  = help: what fits: 40 (producer) and 232 (math), or 48 (producer) and 224 (math)\n"
    )


def test_two_owners_on_one_barrier_are_refused_with_both_lines(toy, refused):
    toy.contracts["epilogue"] = change(ALL["epilogue"], "claims", "store", fixed=1)
    extra = Claim("order", "barrier", "256", fixed=1)
    toy.contracts["mainloop"] = add(ALL["mainloop"], "claims", extra)
    assert refused(*LINK) == (
        "error[PL032]: barrier 1 is fixed by epilogue of activation (instance 'act') "
        "and by mainloop of matrix (instance 'mma')\n"
        "  --> mainloop.cu:32\n"
        "  ::: epilogue.cu:33\n"
        "  = help: leave one of the ids to the link\n"
    )


def line_of(name, text):
    """Where a text stands in a source of the ffn kernel, as diagnostics write it."""
    lines = (ROOT / FFN / name).read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return f"{FFN / name}:{number}"


def test_too_much_shared_memory_is_refused(objects, call, tmp_path, monkeypatch):
    """The real kernel, with one stage more than a block has bytes for."""
    monkeypatch.chdir(tmp_path)
    base = os.path.relpath(ROOT / FFN / "ffn.kernel.toml")
    Path("big.kernel.toml").write_text(
        f'extends = "{base}"\nkernel = "big"\n[instances.load]\nfacts = {{ stages = 5 }}\n'
    )
    done = call("link", "big.kernel.toml", "--objects", objects, "-o", "big.cubin")
    assert (done.code, list(files())) == (1, ["big.kernel.toml"])
    out, in_ = line_of("loader.cu", "auto out ="), line_of("mainloop.cu", "auto in =")
    assert done.err == (
        "error[PL030]: the kernel needs 266320 bytes of shared memory, a block of sm_90a has 232448\n"
        f"  --> {out}: part 'x': 163840 bytes; part 'w': 102400 bytes\n"
        f"  ::: {in_}\n"
        f"  ::: {line_of('loader.cu', 'auto stages =')}: stages = 5\n"
        f"  ::: {line_of('mainloop.cu', 'auto tile_m =')}: tile_m = 256\n"
        f"  ::: {line_of('loader.cu', 'auto tile_k =')}: tile_k = 64\n"
        f"  ::: {line_of('mainloop.cu', 'auto tile_n =')}: tile_n = 160\n"
        f"  ::: {line_of('mainloop.cu', 'auto rows =')}: rows = 128\n"
        f"  ::: {line_of('mainloop.cu', 'auto warpgroups =')}: warpgroups = 2\n"
        "  = note: these 2 alone need 266240\n"
        "  = note: load.out.x: 163840 bytes, 5 stages of 256x64 bf16, 128-byte swizzle\n"
        "  = note: load.out.w: 102400 bytes, 5 stages of 160x64 bf16, 128-byte swizzle\n"
        "  = help: at most 4 stages of 'load.out' fit beside the rest\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_without_objects_a_contract_file_is_the_place(toy, refused):
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 5 }')

    def prepare():
        toy.kernel()
        for name in ALL:
            Path(f"{name}.o").unlink()

    text = refused("plan", "toy.kernel.toml", "--contracts", "-o", "toy.plan.json", prepare=prepare)
    assert (
        text.splitlines()[1]
        == "  --> loader.contract.json: part 'w': 163840 bytes; part 'x': 81920 bytes; stages = 5; tile_k = 64"
    )


def test_a_damaged_contract_file_is_refused(refused):
    def prepare():
        for name in ALL:
            Path(f"{name}.contract.json").write_text("{}")

    text = refused("plan", "toy.kernel.toml", "--contracts", "-o", "toy.plan.json", prepare=prepare)
    assert text.splitlines()[:2] == [
        f"error[PL003]: loader.contract.json: {DAMAGED}: Object missing required field `component`",
        "  --> loader.contract.json",
    ]


BY_PLAN = (*LINK, "--plan", "toy.plan.json", "--glue", "toy.glue.fatbin")


def test_a_plan_of_other_contracts_is_refused(toy, refused):
    def prepare():
        Path("toy.glue.fatbin").write_bytes(b"glue")
        Path("toy.plan.json").write_bytes(driver.encode_plan(toy.plan()))
        toy.contracts["mainloop"] = replace(ALL["mainloop"], version="2.0")
        toy.objects()

    assert refused(*BY_PLAN, prepare=prepare) == (
        "error[PL008]: the plan of 'toy' was made with another contract of mainloop of matrix "
        "than the one in mainloop.o\n"
        "  --> mainloop.o\n"
        "  = help: make the plan anew\n"
    )


def test_a_missing_glue_is_refused(toy, refused):
    def prepare():
        Path("toy.plan.json").write_bytes(driver.encode_plan(toy.plan()))

    assert refused(*BY_PLAN, prepare=prepare) == (
        "error[PL001]: toy.glue.fatbin can't be read: no such file or directory\n"
        "  --> toy.glue.fatbin\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "toy.plan.json is no plan: Input data was truncated"),
        ("{}", "toy.plan.json is no plan: Object missing required field `kernel`"),
        ('{"a": 1}', "toy.plan.json is no plan: Object contains unknown field `a`"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(refused, text, why):
    def prepare():
        Path("toy.plan.json").write_text(text)

    assert refused("render", "toy.plan.json", "-o", "toy.glue.cu", prepare=prepare) == (
        f"error[PL008]: {why}\n  --> toy.plan.json\n"
    )


def test_a_plan_that_is_not_there_is_refused(refused):
    assert refused("render", "toy.plan.json", "-o", "toy.glue.cu") == (
        "error[PL001]: toy.plan.json can't be read: no such file or directory\n  --> toy.plan.json\n"
    )


def test_json_has_the_same_on_standard_output(toy, call):
    toy.edit('steps = ["load.run"]', 'steps = ["loader.run"]')
    toy.objects()
    done = call("check", "toy.kernel.toml", "--format", "json")
    assert (done.code, done.err) == (1, "")
    assert done.out == (
        '{"diagnostics":[{"code":"PL005",'
        "\"message\":\"role 'producer' names instance 'loader', which does not exist\","
        '"places":[{"file":"toy.kernel.toml","line":19,"label":"","instance":"","key":"loader"}],'
        '"notes":[],"help":"did you mean \'load\'?"}]}\n'
    )


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("frobnicate",),
        ("link", "toy.kernel.toml"),
        ("compile", "a.cu", "-o", "a.o"),
        ("check", "toy.kernel.toml", "--format", "yaml"),
        ("plan", "toy.kernel.toml", "-o", "p.json", "--no-such-option"),
    ],
)
def test_wrong_usage_has_an_exit_code_of_its_own(toy, call, argv):
    toy.objects()
    before = files()
    done = call(*argv)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: pipelink")
    assert files() == before


@pytest.mark.parametrize("alone", ["--plan", "--glue"])
def test_plan_and_glue_go_together(toy, call, alone):
    toy.objects()
    before = files()
    done = call(*LINK, alone, "x")
    assert done == (2, "", "pipelink link: --plan and --glue go together, without --reproduce\n")
    assert files() == before


def test_a_right_kernel_passes(toy, call):
    toy.objects()
    assert call("check", "toy.kernel.toml") == (
        0,
        "toy: 3 instances, 384 threads, 197672 bytes of shared memory; everything agrees\n",
        "",
    )
