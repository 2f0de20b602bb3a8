"""The rebuild graph, with the real tools: what runs after which change, and what stays the same.

One tree is built once; every test works on a copy of it, its build folder included.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pipelink import steps

pytestmark = pytest.mark.xdist_group("build")

ROOT = Path(__file__).resolve().parent.parent
TREE = ("pipelink", "templates", "site_scons", "components/ffn", "SConstruct", "pyproject.toml")
WEIRD = "a  (ñ) $x"
FFN = Path("components/ffn")
OBJECTS = Path("build/sm_90a")
KERNEL = OBJECTS / "ffn"
SCONSTRUCT = """\
env = Environment(tools=["pipelink_build"], CPPPATH=Glob("inc*"))
env.Component(Glob("components/*/*.cu"))
env.FusedKernel("components/ffn/ffn.kernel.toml")
"""
NOTHING = ["scons: `.' is up to date."]
# What must not depend on the folder that the tree lies in.
SAME = ("*.contract.json", "*.plan.json", "*.glue.cu", "*.cubin", "*.map.json", "ffn.json")


def call(argv: Sequence[str | Path], cwd: Path, **extra: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(argv, cwd=cwd, env=env | extra, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scons(tree: Path, *options: str, python: str | Path = sys.executable) -> list[str]:
    """The lines that SCons prints, of commands only what follows `-m pipelink`."""
    lines = call([python, "-m", "SCons", "-Q", *options], tree).splitlines()
    return [line.partition(" -m pipelink ")[2] or line for line in lines]


def calls(lines: list[str]) -> list[str]:
    """`compile loader.cu`: each command and the file it reads."""
    words = [shlex.split(line) for line in lines]
    return [f"{w[0]} {Path(w[2] if w[1] == '--glue' else w[1]).name}" for w in words]


def copy_sources(tree: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, tree / name)


def prepend(file: Path, text: str) -> None:
    file.write_text(text + file.read_text())


def files(tree: Path, patterns: Sequence[str] = ("*",)) -> dict[str, bytes]:
    found = [f for p in patterns for f in (tree / OBJECTS).rglob(p) if f.is_file()]
    return {str(f.relative_to(tree)): f.read_bytes() for f in found}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The case study, its headers nested and one of them found through `-I` alone."""
    tree = tmp_path_factory.mktemp("sources") / "tree"
    copy_sources(tree)
    (tree / "SConstruct").write_text(SCONSTRUCT)
    include = tree / f"inc {WEIRD}"
    include.mkdir()
    (include / "searched.cuh").write_text('#include "nested.cuh"\n')
    (include / "nested.cuh").write_text("#pragma once\n")
    prepend(tree / FFN / "epilogue.cu", "#include <searched.cuh>\n")
    return tree


@pytest.fixture(scope="module")
def built(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("built") / "tree"
    shutil.copytree(sources, tree)
    scons(tree, "-j2")
    return tree


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "tree"))


def test_second_run_runs_nothing(tree: Path) -> None:
    assert scons(tree) == NOTHING


def test_code_edit_compiles_one_object_and_relinks(tree: Path) -> None:
    source = tree / FFN / "loader.cu"
    source.write_text(source.read_text() + "\n__device__ int edited(int x) { return x + 1; }\n")
    assert calls(scons(tree)) == ["compile loader.cu", "contract loader.o", "link ffn.kernel.toml"]
    assert scons(tree) == NOTHING


def test_comment_leaves_the_cubin_the_same(tree: Path) -> None:
    before = files(tree, SAME)
    prepend(tree / FFN / "mainloop.cu", "// a comment\n\n")
    ran = calls(scons(tree))
    assert ran[:2] == ["compile mainloop.cu", "contract mainloop.o"]
    assert ran[2:] in ([], ["link ffn.kernel.toml"])
    assert files(tree, SAME) == before


def test_nested_header_recompiles_those_that_include_it(tree: Path) -> None:
    prepend(tree / f"inc {WEIRD}" / "nested.cuh", "// changed\n")
    ran = [c for c in calls(scons(tree, "-n")) if c.startswith("compile")]
    assert ran == ["compile epilogue.cu"]


def edit_module(tree: Path, name: str) -> None:
    prepend(tree / "pipelink" / name, "# changed\n")


def edit_template(tree: Path, name: str) -> None:
    prepend(tree / "templates" / name, "{# changed #}")


def test_scons_module_is_read_by_no_step(tree: Path) -> None:
    edit_module(tree, "scons.py")
    assert scons(tree) == NOTHING


@pytest.mark.parametrize(
    ("edit", "name", "kinds"),
    [
        (edit_module, "report/map.py", {"link"}),
        (edit_module, "resolve.py", {"plan", "render", "link"}),
        (edit_module, "elf.py", {"compile", "contract", "plan", "render", "link"}),
        (edit_template, "*", {"render"}),
    ],
)
def test_steps_depend_on_the_modules_that_they_run(
    tree: Path, edit: Callable[[Path, str], None], name: str, kinds: set[str]
) -> None:
    folder = tree / "templates"
    edit(tree, min(f.name for f in folder.iterdir()) if name == "*" else name)
    assert {line.split()[0] for line in calls(scons(tree))} == kinds


def imported(tree: Path, line: str) -> set[str]:
    """PipeLink's modules that one command imports, as the interpreter itself reports them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pipelink", *shlex.split(line)],
        cwd=tree,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"\| +(pipelink[\w.]*)$", done.stderr, re.MULTILINE))


def test_table_of_modules_names_all_that_a_call_imports(tree: Path) -> None:
    shutil.rmtree(tree / "build")
    for line in scons(tree, "-n"):
        call_name = line.split()[0]
        known = {
            f.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            for f in steps.modules(call_name)
            if f.suffix == ".py"
        }
        (tree / shlex.split(line)[shlex.split(line).index("-o") + 1]).parent.mkdir(
            parents=True, exist_ok=True
        )
        unknown = imported(tree, line) - {name.removesuffix(".__init__") for name in known}
        assert not unknown, f"pipelink/steps.py: '{call_name}' also runs {sorted(unknown)}"


def test_printed_lines_run_by_hand(tree: Path) -> None:
    before = files(tree, SAME)
    shutil.move(tree / "build", tree / "old")
    lines = call([sys.executable, "-m", "SCons", "-Q", "-n"], tree).splitlines()
    shutil.move(tree / "old", tree / "build")
    for line in lines:
        if " -m pipelink compile " not in line:
            call(["sh", "-c", line], tree)
    assert files(tree, SAME) == before


@pytest.mark.parametrize("decider", ["content", "content-timestamp"])
def test_another_object_of_the_same_time_and_size(tree: Path, decider: str) -> None:
    (tree / "SConstruct").write_text(f"Decider({decider!r})\n" + SCONSTRUCT)
    scons(tree)
    manifest = tree / FFN / "ffn.kernel.toml"
    time = manifest.stat()
    shutil.copy2(tree / OBJECTS / FFN / "loader.o", tree / OBJECTS / FFN / "copied.o")
    manifest.write_text(manifest.read_text().replace("loader.o", "copied.o"))
    os.utime(manifest, ns=(time.st_atime_ns, time.st_mtime_ns))
    ran = calls(scons(tree, "-n"))
    assert {"contract copied.o", "plan ffn.kernel.toml", "link ffn.kernel.toml"} <= set(ran)


def test_comment_in_the_manifest_stops_at_the_plan(tree: Path) -> None:
    prepend(tree / FFN / "ffn.kernel.toml", "# a comment\n")
    assert calls(scons(tree)) == ["plan ffn.kernel.toml"]


def test_edit_of_an_extended_manifest_reaches_the_variant(tree: Path) -> None:
    base, variant = tree / FFN / "ffn.kernel.toml", tree / FFN / "v.kernel.toml"
    variant.write_text('extends = "ffn.kernel.toml"\nkernel = "v"\n')
    with (tree / "SConstruct").open("a") as construct:
        construct.write('env.FusedKernel("components/ffn/v.kernel.toml")\n')
    assert "link v.kernel.toml" in calls(scons(tree))
    prepend(base, "# a comment\n")
    assert calls(scons(tree)) == ["plan ffn.kernel.toml", "plan v.kernel.toml"]
    base.write_text(base.read_text().replace("tile_n = 160", "tile_n = 128"))
    assert {"link ffn.kernel.toml", "link v.kernel.toml"} <= set(calls(scons(tree)))


def test_clean_removes_every_product(tree: Path) -> None:
    assert files(tree)
    scons(tree, "-c")
    assert files(tree) == {}


def test_dry_run_writes_nothing(tree: Path) -> None:
    scons(tree, "-c")
    ran = calls(scons(tree, "-n"))
    assert ran.count("link ffn.kernel.toml") == 1
    assert files(tree) == {}


def test_broken_manifest_is_reported_by_the_plan(tree: Path) -> None:
    prepend(tree / FFN / "ffn.kernel.toml", "[\n")
    done = subprocess.run(
        [sys.executable, "-m", "SCons", "-Q"], cwd=tree, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "components/ffn/ffn.kernel.toml is no TOML" in done.stderr
    assert not (tree / KERNEL / "ffn.plan.json").exists()


def test_another_folder_gives_the_same_bytes(sources: Path, built: Path, tmp_path: Path) -> None:
    tree = tmp_path / WEIRD / "tree"
    shutil.copytree(sources, tree)
    scons(tree, "-j2")
    assert files(tree, SAME) == files(built, SAME)


def test_folder_with_a_weird_name(tree: Path) -> None:
    folder = tree / "components" / WEIRD
    folder.mkdir()
    (folder / "own.cuh").write_text("#pragma once\n")
    shutil.copy(tree / FFN / "loader.cu", folder / "twin.cu")
    prepend(folder / "twin.cu", '#include "own.cuh"\n')
    assert calls(scons(tree)) == ["compile twin.cu", "contract twin.o"]
    prepend(folder / "own.cuh", "// changed\n")
    assert calls(scons(tree, "-n")) == ["compile twin.cu"]
    scons(tree, "-c")
    assert files(tree) == {}


def test_wheel_carries_headers_and_templates(sources: Path, tmp_path: Path) -> None:
    wheels, venv, project = tmp_path / "wheels", tmp_path / "venv", tmp_path / "project"
    packaged = Path(shutil.copytree(sources, tmp_path / "packaged"))
    pip = [sys.executable, "-m", "pip", "--quiet"]
    call([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, "."], packaged)
    call([sys.executable, "-m", "venv", "--without-pip", venv], tmp_path)
    python = venv / "bin/python"
    (wheel,) = wheels.iterdir()
    call([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], tmp_path)
    shutil.rmtree(packaged)
    # The packages that PipeLink stands on are lent, an installed or editable PipeLink is not.
    (site,) = venv.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "pipelink" not in entry.name:
            (site / entry.name).symlink_to(entry)
    shipped = "import pipelink.resources as r; print(r.include_dir(), r.template_dir())"
    assert call([python, "-c", shipped], tmp_path).split() == [
        str(site / "pipelink/include"),
        str(site / "pipelink/templates"),
    ]

    shutil.copytree(sources / FFN, project / FFN)
    shutil.copytree(sources / f"inc {WEIRD}", project / "inc")
    imports = "import pipelink.scons\n"
    tool = SCONSTRUCT.replace('["pipelink_build"]', '["default", pipelink.scons.generate]')
    (project / "SConstruct").write_text(imports + tool)
    scons(project, "-j2", python=python)
    assert (project / KERNEL / "ffn.cubin").read_bytes()[:4] == b"\x7fELF"
    assert scons(project, python=python) == NOTHING
