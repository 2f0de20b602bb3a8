"""Pictures of linker maps for the documentation, light and dark.

    python bench/pictures.py [--objects DIR] [--into docs/pictures] [--whole] MANIFEST...

Each manifest gives KERNEL-light.png and KERNEL-dark.png: the map's page from its head to the named
barriers, as wide as a talk's slide and as high as what it shows. Needs chromium.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipelink.cli import main as pipelink  # noqa: E402

WIDTH, SCALE = 1240, 1.5
SCHEMES = {"dark": 0, "light": 1}  # as chromium numbers them
# What a picture can't do: open a table, be followed down to the last one.
SHORT = "details, .two, #arguments, footer { display: none } body { padding-bottom: 40px }"
WHOLE = "details { display: none }"
# A page's height is told by its title, which is all that --dump-dom is asked for.
MEASURE = (
    "<script>document.title = Math.ceil(document.body.getBoundingClientRect().height)</script>"
)


def chromium(page: Path, scheme: str, height: int, *arguments: str) -> str:
    """One run on a page; returns what it prints."""
    program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={WIDTH},{height}", f"--force-device-scale-factor={SCALE}"]
    command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", *arguments]
    done = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def linked(manifest: Path, objects: Path | None, folder: Path) -> str:
    """The map of a kernel as a page."""
    page = folder / "map.html"
    where = ["--objects", str(objects)] if objects else []
    if pipelink(["map", str(manifest), *where, "--format", "html", "-o", str(page)]):
        sys.exit(1)
    return page.read_text()


def pictures(manifest: Path, objects: Path | None, into: Path, style: str) -> None:
    """Both schemes of one kernel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = linked(manifest, objects, folder)
        kernel = re.search(r"<h1>([\w.]+)</h1>", text)
        assert kernel is not None, "a kernel's name is a C name"
        page = folder / "shown.html"
        page.write_text(
            text.replace("</style>", f"{style}</style>").replace("</body>", f"{MEASURE}</body>")
        )
        for scheme in SCHEMES:
            dom = chromium(page, scheme, 800, "--dump-dom")
            height = re.search(r"<title>(\d+)</title>", dom)
            assert height is not None, "the page says how high it is"
            target = into / f"{kernel[1]}-{scheme}.png"
            chromium(page, scheme, int(height[1]), f"--screenshot={target.resolve()}")
            print(f"{target}: {WIDTH} x {height[1]}, {target.stat().st_size // 1024} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("manifests", type=Path, nargs="+", metavar="MANIFEST")
    parser.add_argument("--objects", type=Path, help="folder that object paths start from")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--whole", action="store_true", help="the whole page")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    for manifest in args.manifests:
        pictures(manifest, args.objects, args.into, WHOLE if args.whole else SHORT)


if __name__ == "__main__":
    main()
