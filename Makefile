# Two commands matter: `make demo` and `make test`. Both set up what they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
RUST := Cargo.toml Cargo.lock $(shell find crates python/src -name '*.rs' -o -name Cargo.toml 2>/dev/null)

.PHONY: help setup demo test test-rust test-python bench bench-images bench-log bench-crew bench-sim fuzz sanitize lint format clean

help:
	@echo "make demo    train on a small image dataset with torch's loader and with forebay's"
	@echo "make test    all tests"
	@echo "make bench   measure against other loaders, in an environment of its own"
	@echo "make bench-images  the same for decoded and augmented images (about an hour)"
	@echo "make bench-log  the log on disk, as root: cold reads, layouts, a slow disk, S3 (about half an hour)"
	@echo "make bench-crew  the crew, as root: unequal ranks, a shifting bottleneck, idle, auto (about an hour)"
	@echo "make bench-sim  the simulator against the engine, as root (a few minutes)"
	@echo "make fuzz    feed the decoders with mutated images until stopped, or for FUZZ=60 seconds"
	@echo "make sanitize  the Rust tests under AddressSanitizer, ThreadSanitizer and Miri (half an hour)"
	@echo "make lint    formatting, lints, types and the arrows between the crates"
	@echo "make setup   only set up: .venv with torch, torchvision and forebay"

setup: $(STAMPS)/package

$(STAMPS)/system: scripts/system_packages.sh
	@scripts/system_packages.sh
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "forebay needs Python 3.11 or later; hint: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/requirements: requirements-dev.txt | $(STAMPS)/system
	@echo "installing torch and what the tests need into $(VENV) (a few minutes the first time)"
	@$(BIN)/pip install --quiet --requirement requirements-dev.txt
	@touch $@

$(STAMPS)/package: $(STAMPS)/requirements pyproject.toml $(RUST)
	@$(BIN)/maturin develop --release --quiet
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

test: setup test-rust test-python

test-rust:
	cargo test --workspace --exclude forebay-python --quiet

test-python: setup
	cargo build --quiet --package forebay-testkit --bins
	$(BIN)/python -m pytest

bench: setup
	@scripts/bench_setup.sh
	@.bench-venv/bin/python bench/all.py

bench-images: setup
	@scripts/bench_setup.sh
	@.bench-venv/bin/python bench/prepared.py $(BENCH)

bench-log: setup
	@scripts/bench_setup.sh
	@.bench-venv/bin/python bench/log.py $(BENCH)

bench-crew: setup
	cargo build --quiet --release --package forebay-testkit --bins
	@$(BIN)/python bench/crew.py $(BENCH)

bench-sim: setup
	cargo build --quiet --release --package forebay-testkit --bins
	@$(BIN)/python bench/sim.py $(BENCH)
	@cargo run --release --quiet --package forebay-sim --example rate

fuzz:
	@scripts/fuzz.sh $(FUZZ)

sanitize:
	@scripts/sanitize.sh $(SANITIZE)

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(PYTHON) scripts/check_arrows.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format:
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

clean:
	cargo clean
	rm -rf $(VENV) .bench-venv .data
