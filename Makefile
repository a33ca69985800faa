# Everything a newcomer needs: `make convert`, `make test`. Nothing is written outside this folder
# but the cache folder that `zoo doctor` names (MENAGERIE_HOME moves it).
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# numpy and torch come first and by pip: some machines offer a CPU build of torch that only pip finds;
# TORCH_INDEX=URL names an index that has one. oneDNN's wheel brings its library three times: one stays.
TORCH := torch==2.13.0

SHELL := bash
# As bundles have it, whatever system a Mac runs; it means nothing elsewhere.
export MACOSX_DEPLOYMENT_TARGET := 15.0
# Behind a build, after `set -o pipefail` (macOS's make 3.81 knows no .SHELLFLAGS): how far ninja is, on one line; all that it says in a log; where it fails, its errors.
counted = 2>&1 | tee build/$(1).log | awk 'match($$0, /\[[0-9]+\/[0-9]+\]/) \
  { printf "\r  %s", substr($$0, RSTART, RLENGTH); fflush(); n++ } END { if (n) print "" }' \
  || { grep -E 'error|FAILED' build/$(1).log | head -n 20; echo "make $(1): failed; all of it is in build/$(1).log"; exit 1; }

.PHONY: help setup wheel convert sweep suites up down test test-all test-native fuzz test-arm64 test-faults test-cluster test-container test-hosts test-ui mac-day double check format lock clean
.DELETE_ON_ERROR:

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready $(VENV)/.prepared ## the environment, with the C++ runtime built and compilers' headers prepared

$(BIN)/python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make setup: $(PYTHON) is not there, is older than 3.11 or has no venv. Name another: make setup PYTHON=python3.12"; exit 2; }
	@echo "setup, 1 of 5: an environment in $(VENV), by $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25"

# Of these, few modules or none are ever imported: Python compiles those when it needs them.
UNCOMPILED := /tests?/|/transformers/models/|/(apprise|beartype|mypy|playwright|pygments|scipy|sklearn|swift)/

$(VENV)/.locked: requirements.lock | $(BIN)/python
	@echo "setup, 2 of 5: $(TORCH), some 200 MB without CUDA"
	@$(BIN)/python -m pip install --quiet --no-compile $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") "$(TORCH)"
	@echo "setup, 3 of 5: $$(grep -c == requirements.lock) locked packages"
	@$(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement requirements.lock
	@$(BIN)/python -m compileall -q -j 0 -x "$(UNCOMPILED)" $(VENV)/lib >/dev/null || true # by all processors, where pip takes one
	@test ! -e $(VENV)/lib/libdnnl.so.3 || ( cd $(VENV)/lib && ln -sf libdnnl.so.3 libdnnl.so && ln -sf libdnnl.so.3 libdnnl.so.3.2 )
	@touch $@

RUNTIME_SOURCES := $(shell find runtime -name '*.cpp' -o -name '*.h' -o -name '*.mm' -o -name '*.metal' -o -name '*.cmake' -o -name 'CMakeLists.txt' -o -name 'shims.toml')

$(VENV)/.ready: $(VENV)/.locked pyproject.toml runtime/pyproject.toml $(RUNTIME_SOURCES)
	@mkdir -p build
	@echo "setup, 4 of 5: the C++ runtime, a minute or two"
	@set -o pipefail; $(BIN)/python -m pip install --verbose --no-deps --no-build-isolation --editable runtime --editable . $(call counted,setup)
	@touch $@

# What every conversion needs once: torch's headers for the CPU, libc++ for Metal. It is kept in the folder that
# `zoo doctor` names; where this fails, the first conversion does it, and says so.
$(VENV)/.prepared: $(VENV)/.locked | $(VENV)/.ready
	@for target in cpu metal; do \
	  echo "setup, 5 of 5: torch's headers and the compiler's library for $$target, once; a minute or several"; \
	  rm -rf build/prepared; \
	  $(BIN)/zoo compile zoo.models.builders.digits_cnn:digits_cnn -i 1x1x8x8 -t $$target -o build/prepared >/dev/null || exit 0; \
	done
	@test "$$(uname)" = Darwin || $(BIN)/python -c 'from menagerie import emulator, library; emulator.prepare(library.library("metal"))'
	@touch $@

# The clang of the ziglang wheel and an old glibc: what is built so runs on any Linux of these years.
# torch's wheel brings a libgomp that does the same.
wheel: dist/.built ## the small package for those who only run artifacts, in dist/

ifeq ($(shell uname),Darwin)
dist/.built: $(VENV)/.ready $(RUNTIME_SOURCES) $(shell find runtime -name '*.py') runtime/pyproject.toml
	@rm -rf dist && mkdir -p build
	@echo "wheel: the runtime, a minute or two"
	@set -o pipefail; $(BIN)/python -m pip wheel --verbose --no-deps --no-build-isolation --wheel-dir dist ./runtime $(call counted,wheel)
	@touch $@
else
dist/.built: $(VENV)/.ready $(RUNTIME_SOURCES) $(shell find runtime -name '*.py') runtime/portable.cmake runtime/pyproject.toml
	@rm -rf dist build/plain && mkdir -p build
	@echo "wheel, 1 of 2: the runtime by zig's clang, for glibc 2.28; some minutes at first"
	@set -o pipefail; PATH="$(CURDIR)/$(BIN):$$PATH" ZIG_GLOBAL_CACHE_DIR="$(CURDIR)/build/zig" ZIG_LOCAL_CACHE_DIR="$(CURDIR)/build/zig" \
	  $(BIN)/python -m pip wheel --verbose --no-deps --no-build-isolation \
	  --wheel-dir build/plain --config-settings build-dir=$(CURDIR)/build/portable \
	  --config-settings cmake.args="-DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/runtime/portable.cmake;-DMENAGERIE_PORTABLE=ON;-DMENAGERIE_LIBGOMP=$$($(BIN)/python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/lib/libgomp.so.1" \
	  ./runtime $(call counted,wheel)
	@echo "wheel, 2 of 2: what it links is put into it, for manylinux_2_28"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --only-plat --plat manylinux_2_28_x86_64 --wheel-dir dist build/plain/menagerie-*.whl
	@touch $@
endif

convert: setup ## convert, prove and publish the default models
	$(BIN)/zoo convert --random-weights 0

sweep: setup ## which architectures convert: runs what the table lacks (MODELS="vit* swin*", TARGET=metal)
	$(BIN)/python -m tests.sweep $(foreach m,$(MODELS),'$(m)') --target $(or $(TARGET),cpu)

suites: setup ## PyTorch's own tables of operators and modules through convert() (CASES="op_db/conv*", TARGET=metal, FRACTION=0.25, MEMORY=address)
	$(BIN)/python -m tests.suites $(foreach c,$(CASES),'$(c)') --target $(or $(TARGET),cpu) --fraction $(or $(FRACTION),1) $(if $(MEMORY),--memory $(MEMORY))

up: setup ## a local cluster: Prefect's server and UI, an S3 server, a worker
	$(BIN)/zoo cluster up

down: setup ## end the local cluster
	$(BIN)/zoo cluster down

# Files go to workers in the order of tests/conftest.py, the longest first.
# One worker more than there are processors: some tests wait for servers.
WORKERS := $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: setup wheel double ## the test suite
	$(PYTEST)

test-native: $(VENV)/.ready ## the C++ units under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/cmake -S tests/native -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python
	MAKEFLAGS= $(BIN)/cmake --build build/native
	build/native/menagerie-native-tests

fuzz: setup ## libFuzzer and atheris on every reader of files, SECONDS=60 each (TARGETS="native-json python-npy")
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(SECONDS),60) $(TARGETS)

test-arm64: setup ## the C++ units for Linux on arm64, emulated (Debian: qemu-user libc6-arm64-cross)
	@command -v qemu-aarch64 >/dev/null && test -d /usr/aarch64-linux-gnu || { echo "apt install qemu-user libc6-arm64-cross"; exit 2; }
	PATH="$(CURDIR)/$(BIN):$$PATH" ZIG_GLOBAL_CACHE_DIR="$(CURDIR)/build/zig" ZIG_LOCAL_CACHE_DIR="$(CURDIR)/build/zig" \
	  $(BIN)/cmake -S tests/native -B build/native-arm64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/runtime/portable_arm64.cmake
	ZIG_GLOBAL_CACHE_DIR="$(CURDIR)/build/zig" ZIG_LOCAL_CACHE_DIR="$(CURDIR)/build/zig" $(BIN)/cmake --build build/native-arm64
	qemu-aarch64 -L /usr/aarch64-linux-gnu build/native-arm64/menagerie-native-tests

test-all: setup wheel double ## the suite with fresh random examples, then every model of the zoo (some hours)
	HYPOTHESIS_PROFILE=explore $(PYTEST)
	$(MAKE) fuzz SECONDS=120
	$(BIN)/python -m pytest -m sweep
	$(BIN)/python -m pytest -n0 -m cluster
	$(BIN)/python -m pytest -m faults
	$(BIN)/python -m pytest -m ui
	test "$$(id -u)" != 0 || $(MAKE) test-hosts test-container

test-ui: setup ## Prefect's UI in headless Chromium: the form, a run, its report
	$(BIN)/python -m pytest -m ui

test-faults: setup ## kill flows, workers, servers and networks of a real cluster (half an hour)
	$(BIN)/python -m pytest -m faults

test-cluster: setup ## a real cluster, from `zoo cluster up` to `zoo cluster down` (some minutes)
	$(BIN)/python -m pytest -n0 -m cluster

CONTAINER_TOOLS := buildah debootstrap podman redis-server runc

test-container: setup ## build the images and convert in them (root; half an hour and 12 GB in build/containers at first)
	@for tool in $(CONTAINER_TOOLS); do command -v $$tool >/dev/null || { echo "apt install buildah debootstrap podman postgresql redis-server runc"; exit 2; }; done
	$(BIN)/python -m pytest -n0 -m container

test-hosts: setup ## a server, workers and a desk on hosts of their own, one cut off (root; Debian: iproute2 postgresql)
	@for tool in ip unshare; do command -v $$tool >/dev/null || { echo "apt install iproute2 postgresql"; exit 2; }; done
	$(BIN)/python -m pytest -n0 -m hosts

double: $(VENV)/.ready # the Metal runtime of a Mac over doubles of Apple's classes, in build/double
	test "$$(uname)" = Darwin || $(BIN)/python tests/runtime/metal/double/load_double.py

mac-day: setup ## the first day on a Mac: operators, models and figures into build/mac-day, to send back (ONLY=operators)
	$(BIN)/python -m benchmarks.mac_day $(ONLY:%=--only %)

check: $(VENV)/.ready ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --package menagerie
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.cpp' '*.h' '*.mm')

format: setup ## rewrite sources in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(git ls-files '*.cpp' '*.h' '*.mm')

lock: setup ## resolve pyproject.toml anew into requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra cluster --extra server --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --quiet --output-file requirements.lock \
	  $$(for p in menagerie torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti \
	    nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand \
	    nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink \
	    nvidia-nvshmem-cu13 nvidia-nvtx; do echo --no-emit-package $$p; done)

clean: ## remove the environment and the build
	rm -rf $(VENV) build dist
