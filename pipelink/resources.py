"""Where the files lie that PipeLink ships beside its Python code."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def include_dir() -> Path:
    """The directory that a component's include path needs for `<pipelink/component.cuh>`."""
    return PACKAGE / "include"


def template_dir() -> Path:
    """The templates of the glue: inside the package in a wheel, beside it in a checkout."""
    installed = PACKAGE / "templates"
    checkout = PACKAGE.parent
    if installed.is_dir():
        return installed
    if (checkout / "pyproject.toml").is_file():
        return checkout / "templates"
    raise FileNotFoundError(f"pipelink is installed without its templates: {installed}")
