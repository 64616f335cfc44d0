# Every target makes the environment it needs (see .ci/env.py); all that is asked for is python3.11.
PYTHON ?= python3.11

CORE := .venv/bin
VLLM := .venv-vllm/bin
SGLANG := .venv-sglang/bin
DOCS := .venv-docs/bin
CODE := eagle_adapters tests benchmarks hatch_build.py .ci

.PHONY: setup pair demo test test-pair lint format pages docs bench bench-vllm bench-sglang test-vllm test-sglang clean

setup:  ## make .venv with everything for development
	@$(PYTHON) .ci/env.py core

demo: setup  ## the main job on a real model class: inspect, wrap, capture, prove; then decode with a trained draft
	$(CORE)/eagle-adapters demo --decode

pair: setup  ## train the small target and draft that acceptance is measured with; minutes, once
	@$(CORE)/python -m eagle_adapters.testing.pair

test: setup  ## the core suite
	$(CORE)/python -m pytest -n 2 --dist loadscope -m "not pair"

test-pair: pair  ## what needs the trained pair: drafting, acceptance, calibration
	$(CORE)/python -m pytest -n 2 --dist load -m pair

lint: setup  ## style, types, layers, data files
	$(CORE)/ruff check $(CODE)
	$(CORE)/ruff format --check $(CODE)
	$(CORE)/mypy
	$(CORE)/lint-imports
	$(CORE)/eagle-adapters registry validate

format: setup  ## put the code into shape
	$(CORE)/ruff check --fix $(CODE)
	$(CORE)/ruff format $(CODE)

pages: setup  ## write the generated pages: docs/errors.md and docs/schema
	$(CORE)/python .ci/pages.py

docs: pages  ## build the site
	@$(PYTHON) .ci/env.py docs
	$(DOCS)/zensical build --clean

bench: setup  ## print the figures of the benchmarks
	@for script in $(sort $(wildcard benchmarks/*.py)); do echo "== $$script"; $(CORE)/python $$script || exit 1; done

bench-vllm:  ## print the figures of the benchmarks that need vLLM: minutes, on an idle machine
	@$(PYTHON) .ci/env.py vllm
	@for script in $(sort $(wildcard benchmarks/vllm/*.py)); do echo "== $$script"; $(VLLM)/python $$script || exit 1; done

bench-sglang:  ## print the figures of the benchmarks that need SGLang
	@$(PYTHON) .ci/env.py sglang
	@for script in $(sort $(wildcard benchmarks/sglang/*.py)); do echo "== $$script"; $(SGLANG)/python $$script || exit 1; done

test-vllm:  ## the suite that runs in a real vLLM
	@$(PYTHON) .ci/env.py vllm
	$(VLLM)/python -m pytest tests/vllm

test-sglang:  ## the suite that runs in a real SGLang
	@$(PYTHON) .ci/env.py sglang
	$(SGLANG)/python -m pytest tests/sglang

clean:  ## remove what the targets made in this folder; the shared packages stay in the cache
	rm -rf .venv .venv-vllm .venv-sglang .venv-docs site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
