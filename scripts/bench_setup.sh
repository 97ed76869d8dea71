#!/usr/bin/env bash
# The peers' own environment: never the one that users and tests have.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
stamp=.bench-venv/.stamp
if [ ! -e "$stamp" ] || [ bench/requirements.txt -nt "$stamp" ]; then
  [ -x .bench-venv/bin/python ] || "$python" -m venv .bench-venv
  echo "installing the peers into .bench-venv (a few minutes the first time)"
  .bench-venv/bin/pip install --quiet --requirement bench/requirements.txt
  touch "$stamp"
fi
.venv/bin/maturin build --release --quiet --out .data/wheels
.bench-venv/bin/pip install --quiet --no-deps --force-reinstall .data/wheels/forebay-*.whl
cargo build --quiet --release --package forebay-testkit --bin faulty-proxy
cargo build --quiet --release --package forebay-plan --example randperm
