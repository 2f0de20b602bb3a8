# All set-up for a machine with Python 3.11, gcc, git and make. Daily use: .venv/bin/scons, pytest.
PYTHON := $(or $(shell command -v python3.11),python3)
READY := .venv/.ready
FFN := components/ffn/ffn.kernel.toml --objects build/sm_90a
GPU := python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null

.PHONY: demo test lint gpu-test

demo: $(READY)
	.venv/bin/python -m SCons -Q
	.venv/bin/python -m pipelink map $(FFN) --verify
	@if $(GPU); then python3 bench/gpu_check.py; else echo 'no torch with a GPU here: not run'; fi

test: $(READY)
	.venv/bin/python -m pytest -n 2

lint: $(READY)
	.venv/bin/python -m ruff check
	.venv/bin/python -m mypy
	find components pipelink tests \( -name '*.cu' -o -name '*.cuh' \) ! -path '*/golden/*' -print0 | \
	    xargs -0 .venv/bin/clang-format --dry-run --Werror

gpu-test:
	python3 bench/gpu_check.py
	python3 bench/loader.py

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[dev]'
	touch $@
