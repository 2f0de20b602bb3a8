"""The manifest's reader: what it takes, and each fault in words."""

from dataclasses import replace
from pathlib import Path

import pytest
from contracts import MANIFEST

from pipelink.diagnostics import FilePlace, InputError
from pipelink.extends import read_table
from pipelink.manifest import read_manifest
from pipelink.model import InstanceSpec, RoleSpec


def faults(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "k.kernel.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_manifest(path)
    return [
        f"{d.code}: {d.message}" + (f" | {d.help}" if d.help else "")
        for d in caught.value.diagnostics
    ]


def edited(old: str, new: str) -> str:
    assert MANIFEST.count(old) == 1
    return MANIFEST.replace(old, new)


def test_every_key_is_read(tmp_path):
    path = tmp_path / "k.kernel.toml"
    old = 'object = "mainloop.o"'
    path.write_text(
        edited(old, f'{old}\nfacts = {{ tile_n = 128 }}\nimports = {{ stages = "load" }}')
    )
    manifest = read_manifest(path)
    assert (manifest.kernel, manifest.target) == ("toy", "sm_90a")
    assert manifest.schedules == (("mma", "schedule"),)
    assert [p.name for p in manifest.phases] == ["tiles"]
    assert manifest.facts == {"hidden": 4096}
    assert manifest.instances[1] == InstanceSpec(
        "mma", "mainloop.o", {"tile_n": 128}, {"stages": "load"}
    )
    assert manifest.roles[1] == RoleSpec("math", (("mma", "run"), ("act", "run")))
    assert [c.ends for c in manifest.channels] == [("load.out", "mma.in"), ("mma.acc", "act.acc")]
    assert manifest.parameters == {"x": ("load.x",), "w": ("load.w",), "out": ("act.out",)}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('kernel = "toy"', "", "PL005: the manifest has no 'kernel'"),
        ('kernel = "toy"', "kernel = 3", "PL005: 'kernel' of the manifest is no text"),
        (
            'kernel = "toy"',
            'kernel = "a-b"',
            "PL005: 'a-b' is no name of a kernel: letters, digits and '_' only",
        ),
        (
            'target = "sm_90a"',
            'target = "sm_90"',
            (
                "PL007: unknown target 'sm_90' | did you mean 'sm_90a'? known targets: "
                "sm_80, sm_90a, sm_100a, sm_103a, sm_120a"
            ),
        ),
        (
            'target = "sm_90a"',
            'target = "gfx942"',
            "PL007: unknown target 'gfx942' | known targets: sm_80, sm_90a, sm_100a, sm_103a, sm_120a",
        ),
        (
            "[facts]",
            "[fact]",
            "PL006: unknown key 'fact' in the manifest | did you mean 'facts'?",
        ),
        (
            'object = "loader.o"',
            'object = "loader.o"\nzzz = 1',
            "PL006: unknown key 'zzz' in [instances.load] | known keys: object, facts, imports, like",
        ),
        (
            'steps = ["load.run"]',
            'steps = ["load.run"]\nwarps = 4',
            "PL006: unknown key 'warps' in [[roles]] | known keys: name, steps",
        ),
        (
            "hidden = 4096",
            "hidden = 1.5",
            "PL005: 'hidden' in [facts] is no integer, truth or text",
        ),
        (
            "hidden = 4096",
            "hidden = 1979-05-27",
            "PL005: 'hidden' in [facts] is no integer, truth or text",
        ),
        (
            'object = "loader.o"',
            'object = "loader.o"\nfacts = { mode = ["fast"] }',
            "PL005: 'mode' in facts of [instances.load] is no integer, truth or text",
        ),
        (
            "hidden = 4096",
            "hidden = 9223372036854775808",
            "PL005: 'hidden' in [facts] has more than 64 bits",
        ),
        ('object = "loader.o"', "", "PL005: [instances.load] has no 'object'"),
        (
            'object = "loader.o"',
            'object = "loader.o"\nimports = 3',
            "PL005: imports of [instances.load] is no table",
        ),
        (
            'object = "loader.o"',
            'object = "loader.o"\nimports = { hidden = 3 }',
            "PL005: 'hidden' in imports of [instances.load] is no name of an instance",
        ),
        ('steps = ["load.run"]', "steps = []", "PL005: role 'producer' has no step"),
        (
            'steps = ["load.run"]',
            'steps = "load.run"',
            "PL005: 'steps' of role 'producer' is no array",
        ),
        (
            'steps = ["load.run"]',
            'steps = ["load"]',
            "PL005: 'load' in role 'producer' is not of the form 'instance.name'",
        ),
        ('name = "producer"', 'name = "math"', "PL005: role 'math' stands twice"),
        ('x = "load.x"', "x = []", "PL005: parameter 'x' names no port"),
        ('x = "load.x"', "x = 3", "PL005: parameter 'x' is no port and no array of ports"),
        (
            'x = "load.x"',
            "x = [3]",
            "PL005: 3 in parameter 'x' is not of the form 'instance.name'",
        ),
        (
            'x = "load.x"',
            'x = "loader.x"',
            "PL005: parameter 'x' names instance 'loader', which does not exist | did you mean 'load'?",
        ),
        (
            'schedule = "mma.schedule"',
            'schedule = "zzz.schedule"',
            "PL005: schedule names instance 'zzz', which does not exist | instances: act, load, mma",
        ),
        ('to = "mma.in"', "", "PL005: [[channels]] has no 'to'"),
        (
            'x = "load.x"',
            'stream = "load.x"',
            (
                "PL005: parameter 'stream' can't be passed by keyword | "
                "rename it: a call passes its stream by this name"
            ),
        ),
        (
            'x = "load.x"',
            'self = "load.x"',
            (
                "PL005: parameter 'self' can't be passed by keyword | "
                "rename it: a method has it for its object"
            ),
        ),
        (
            'x = "load.x"',
            'lambda = "load.x"',
            (
                "PL005: parameter 'lambda' can't be passed by keyword | "
                "rename it: Python has the word for itself"
            ),
        ),
    ],
)
def test_a_fault_is_named(tmp_path, old, new, fault):
    assert fault in faults(tmp_path, edited(old, new))


@pytest.mark.parametrize("name", ["roles", "channels"])
def test_rows_that_are_no_tables_are_named(tmp_path, name):
    kept = MANIFEST.split("[[roles]]")[0] + "[parameters]\n"
    text = f'{name} = ["x"]\n' + kept
    assert f"PL005: 'x' in [[{name}]] is no table" in faults(tmp_path, text)


def test_an_instance_can_not_have_the_name_of_the_kernel_itself(tmp_path):
    text = MANIFEST.replace("[instances.act]", "[instances.kernel]").replace('"act.', '"kernel.')
    message = "PL005: an instance can't be named 'kernel', which the kernel's facts go by"
    assert faults(tmp_path, text) == [message]


def test_all_faults_are_reported_at_once(tmp_path):
    text = edited("hidden = 4096", "hidden = 0.5").replace("sm_90a", "sm_90b")
    assert faults(tmp_path, text) == [
        (
            "PL007: unknown target 'sm_90b' | did you mean 'sm_90a'? known targets: "
            "sm_80, sm_90a, sm_100a, sm_103a, sm_120a"
        ),
        "PL005: 'hidden' in [facts] is no integer, truth or text",
    ]


def test_facts_are_integers_truths_and_texts(tmp_path):
    path = tmp_path / "k.kernel.toml"
    old, facts = 'object = "loader.o"', 'facts = { causal = false, mode = "fast", stages = 4 }'
    text = edited("hidden = 4096", 'hidden = 4096\nfused = true\nname = "silu"')
    path.write_text(text.replace(old, f"{old}\n{facts}"))
    manifest = read_manifest(path)
    assert manifest.facts == {"hidden": 4096, "fused": True, "name": "silu"}
    assert type(manifest.facts["fused"]) is bool
    assert manifest.instances[0].facts == {"causal": False, "mode": "fast", "stages": 4}


def rest(section: str) -> str:
    """The toy's manifest from a section's keys on, without what stands before."""
    return MANIFEST[MANIFEST.index(section) :]


HEAD = MANIFEST[: MANIFEST.index("[facts]")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            f"instances = 3\n{HEAD}{rest('[[roles]]')}",
            "PL005: 'instances' of the manifest is no table",
        ),
        (
            f"instances = {{}}\n{HEAD}{rest('[[roles]]')}",
            "PL005: [instances] is empty | a kernel is made of instances",
        ),
        (HEAD + rest("[[roles]]"), "PL005: the manifest has no 'instances'"),
        (
            MANIFEST.replace('[instances.act]\nobject = "epilogue.o"', "[instances]\nact = 3"),
            "PL005: [instances.act] is no table",
        ),
    ],
)
def test_instances_that_are_none_are_one_fault(tmp_path, text, fault):
    assert faults(tmp_path, text) == [fault]


# --- Manifests that extend one another --------------------------------------------------------


def extended(tmp_path: Path, text: str) -> Path:
    (tmp_path / "base").mkdir(exist_ok=True)
    (tmp_path / "base" / "toy.kernel.toml").write_text(MANIFEST)
    path = tmp_path / "k.kernel.toml"
    path.write_text(text)
    return path


BASE = 'extends = "base/toy.kernel.toml"\nkernel = "own"\n'


def test_an_extended_manifest_is_taken_over(tmp_path):
    path = extended(tmp_path, BASE)
    base = tmp_path / "base" / "toy.kernel.toml"
    files = (path.as_posix(), base.as_posix())
    assert read_manifest(path) == replace(
        read_manifest(base), path=path.as_posix(), files=files, kernel="own"
    )


def test_tables_are_laid_over_key_by_key(tmp_path):
    path = extended(tmp_path, f"{BASE}[instances.mma]\nfacts = {{ tile_n = 64 }}\n")
    manifest = read_manifest(path)
    assert manifest.instances[1] == InstanceSpec("mma", "mainloop.o", {"tile_n": 64})
    assert [i.name for i in manifest.instances] == ["load", "mma", "act"]


def test_an_array_is_replaced_whole(tmp_path):
    text = f'{BASE}[[channels]]\nfrom = "mma.acc"\nto = "act.acc"\n'
    found = read_manifest(extended(tmp_path, text)).channels
    assert [c.ends for c in found] == [("mma.acc", "act.acc")]


def test_parameters_are_replaced_whole_in_their_order(tmp_path):
    text = f'{BASE}[parameters]\nout = "act.out"\nw = "load.w"\nx = "load.x"\n'
    parameters = read_manifest(extended(tmp_path, text)).parameters
    assert list(parameters) == ["out", "w", "x"]
    text = f'{BASE}[parameters]\nout = "act.out"\n'
    assert read_manifest(extended(tmp_path, text)).parameters == {"out": ("act.out",)}


def test_a_chain_is_laid_over_from_its_end(tmp_path):
    extended(tmp_path, f"{BASE}[facts]\nhidden = 64\n")
    path = tmp_path / "two.kernel.toml"
    path.write_text('extends = "k.kernel.toml"\nkernel = "two"\n')
    manifest = read_manifest(path)
    assert (manifest.kernel, manifest.facts) == ("two", {"hidden": 64})
    assert len(manifest.files) == 3


def test_a_fault_is_in_the_file_that_has_it(tmp_path):
    path = extended(tmp_path, BASE)
    base = tmp_path / "base" / "toy.kernel.toml"
    base.write_text(edited('kernel = "toy"', 'kernel = "a-b"'))
    with pytest.raises(InputError) as caught:
        read_manifest(path)
    assert [d.primary for d in caught.value.diagnostics] == [FilePlace(str(base), "kernel")]


def test_bounds_that_do_not_fit_inherited_ones_name_both_files(tmp_path):
    path = extended(tmp_path, f"{BASE}[extents]\nm = {{ least = 129 }}\n")
    base = tmp_path / "base" / "toy.kernel.toml"
    base.write_text(MANIFEST + "[extents]\nm = { most = 64 }\n")
    with pytest.raises(InputError) as caught:
        read_manifest(path)
    (fault,) = caught.value.diagnostics
    message = "'m' in [extents] is 129 to 64, bounds are 1 <= least <= most <= 2147483647"
    assert (fault.message, fault.primary) == (message, FilePlace(str(path), "m"))
    assert fault.secondary == (FilePlace(str(base), "m"),)


def test_each_key_knows_the_file_that_it_came_from(tmp_path):
    path = extended(tmp_path, f"{BASE}[instances.mma]\nfacts = {{ tile_n = 64 }}\n")
    base = tmp_path / "base" / "toy.kernel.toml"
    table, _ = read_table(path)
    mma = table["instances"]["mma"]
    assert mma.files == {"object": base, "facts": path}
    assert (table.files["kernel"], table.files["target"]) == (path, base)


def test_manifests_that_extend_one_another_print_the_circle(tmp_path):
    for name, base in (("a", "b"), ("b", "c"), ("c", "b")):
        (tmp_path / name).write_text(f'extends = "{base}"\nkernel = "{name}"\n')
    with pytest.raises(InputError) as caught:
        read_manifest(tmp_path / "a")
    (fault,) = caught.value.diagnostics
    b, c = tmp_path / "b", tmp_path / "c"
    assert fault.message == f"{b} extends {c}, which extends {b}"
    assert fault.primary == FilePlace(str(c), "extends")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("extends = 3\n", "PL005: 'extends' of the manifest is no text"),
        ('extends = "base"\n', "PL005: {0}/k.kernel.toml extends {0}/base, which is a folder"),
        ('extends = ""\n', "PL005: {0}/k.kernel.toml extends {0}, which is a folder"),
        (
            'extends = "none.toml"\n',
            "PL005: {0}/k.kernel.toml extends {0}/none.toml, which does not exist",
        ),
        (
            'extends = "k.kernel.toml"\n',
            "PL005: {0}/k.kernel.toml extends itself",
        ),
        (
            'extends = "base/toy.kernel.toml"\n',
            (
                "PL005: a manifest that extends another one has no 'kernel' | give it a name of its own, "
                "'toy' is the kernel of {0}/base/toy.kernel.toml"
            ),
        ),
        (
            f"{BASE}[instances.math]\nfacts = {{ tile_n = 64 }}\n",
            (
                "PL005: [instances.math] has no 'object', and {0}/base/toy.kernel.toml has no instance "
                "'math' | its instances: load, mma, act"
            ),
        ),
        (
            f"{BASE}[instances.loader]\nimports = {{ hidden = 'mma' }}\n",
            (
                "PL005: [instances.loader] has no 'object', and {0}/base/toy.kernel.toml has no instance "
                "'loader' | did you mean 'load'?"
            ),
        ),
        (
            f"{BASE}[instances.mma]\nfact = {{ tile_n = 64 }}\n",
            "PL006: unknown key 'fact' in [instances.mma] | did you mean 'facts'?",
        ),
    ],
)
def test_a_fault_of_extending_is_named(tmp_path, text, fault):
    extended(tmp_path, "")
    assert faults(tmp_path, text) == [fault.format(tmp_path)]


# --- Bounds of extents ------------------------------------------------------------------------


def test_bounds_are_read(tmp_path):
    text = f"{BASE}[extents]\nm = {{ least = 2, most = 64 }}\nn = {{ most = 9 }}\n"
    assert read_manifest(extended(tmp_path, text)).extents == {"m": (2, 64), "n": (1, 9)}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("extents = 3\n", "PL005: [extents] is no table"),
        ("[extents]\nm = 3\n", "PL005: 'm' in [extents] is no table"),
        (
            "[extents]\nm = { max = 3 }\n",
            "PL006: unknown key 'max' in 'm' in [extents] | known keys: least, most",
        ),
        (
            "[extents]\nm = { least = 0 }\n",
            "PL005: 'm' in [extents] is 0 to 2147483647, bounds are 1 <= least <= most <= 2147483647",
        ),
        (
            '[extents]\nm = { most = "9" }\n',
            "PL005: 'most' of 'm' in [extents] is no integer",
        ),
        ("[extents]\nm = { least = true }\n", "PL005: 'least' of 'm' in [extents] is no integer"),
    ],
)
def test_a_fault_of_bounds_is_named(tmp_path, text, fault):
    extended(tmp_path, "")
    assert faults(tmp_path, BASE + text) == [fault]
