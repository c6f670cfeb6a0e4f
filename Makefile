# Two commands do everything on a fresh Debian machine: `make demo` and `make test`.
# Each makes what it needs (environment, Docker engine, kernel image, model) once, and says so.

SHELL := bash
BIN := .venv/bin
SUBMAKE := $(MAKE) --no-print-directory

# The demo's model: the small one, a folder of yours (MODEL=...), or one behind an API, which needs
# neither torch nor weights.
DEMO_ENV := demo
DEMO_MODEL := model
ifneq ($(MODEL),)
DEMO_MODEL :=
DEMO_ENV := $(if $(wildcard $(MODEL)/.),demo,core)
else ifneq ($(OPENAI_API_KEY)$(OPENAI_BASE_URL)$(ANTHROPIC_API_KEY),)
DEMO_MODEL :=
DEMO_ENV := core
endif

# BACKEND=bubblewrap does without a Docker engine: the kernel runs with this environment's libraries.
DEMO_RUN := $(if $(BACKEND),$(SUBMAKE) host-kernel,scripts/with-docker.sh $(SUBMAKE) image)

.DEFAULT_GOAL := help
.PHONY: help demo test bench unit lint format types examples wheel image analysis lock-images model data env lock clean host-kernel run-demo run-tests run-examples run-bench

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## A model writes code, a container runs it, the answer comes back
	@scripts/env.sh $(DEMO_ENV)
	@$(DEMO_RUN) $(DEMO_MODEL) data run-demo

test: ## All tests but those for a GPU; ARGS='-k fence' passes options to pytest
	@scripts/env.sh test
	@scripts/with-docker.sh $(SUBMAKE) image analysis model run-tests

bench: ## Figures beside their floors; ARGS='--quick round_trip' chooses, ARGS=--help tells more
	@scripts/env.sh test
	@scripts/with-docker.sh $(SUBMAKE) image run-bench

unit: env ## The tests that need neither Docker nor a model
	@$(BIN)/pytest -n auto --dist loadfile -m 'not docker and not model and not gpu' $(ARGS)

lint: env ## Style and common mistakes (ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: env ## Rewrite the files as `make lint` wants them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: env ## Types (mypy --strict)
	@$(BIN)/mypy

examples: ## Every script in examples/, offline
	@scripts/env.sh test
	@scripts/with-docker.sh $(SUBMAKE) image model run-examples

wheel: env ## Build wheel and sdist, and use the wheel in an environment of its own
	@scripts/wheel.sh

image: ## The kernel image, unless it is there
	@scripts/image.sh

analysis: ## The kernel image with the libraries for data analysis, unless it is there
	@scripts/image.sh analysis

lock-images: ## Write docker/*.lock: what goes into the kernel images; needs uv
	@scripts/lock-images.sh

model: ## The small model, unless it is there
	@$(BIN)/python scripts/fetch_model.py

data: ## The table that the demo asks about, unless it is there
	@$(BIN)/python scripts/fetch_data.py

env: ## .venv with everything for development
	@scripts/env.sh test

lock: env ## Write the versions installed now into requirements/constraints.txt
	@$(BIN)/python scripts/lock.py

clean: ## Remove what the commands above made, except the kernel image
	rm -rf .venv .cache build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

host-kernel:
	@command -v bwrap >/dev/null || { echo 'install bubblewrap first: apt install bubblewrap' >&2; exit 1; }
	@$(BIN)/python -c 'import ipykernel, matplotlib, pandas' 2>/dev/null || { \
		echo 'installing what the kernel needs into .venv' >&2; \
		$(BIN)/pip install -q -c requirements/constraints.txt -e '.[local]' pandas matplotlib; }

run-demo:
	@$(BIN)/python examples/demo.py $(ARGS)

run-tests:
	@scripts/test.sh $(ARGS)

run-bench:
	@$(BIN)/python -m benchmarks $(ARGS)

run-examples:
	@scripts/examples.sh
