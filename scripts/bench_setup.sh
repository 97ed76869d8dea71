#!/usr/bin/env bash
# The peers' own environment: never the one that users and tests have.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
peers=.bench-venv
stamp=$peers/.stamp
ffcv_stamp=$peers/.stamp-ffcv

# FFCV is compiled on the spot, against these.
ffcv_libraries() {
  pkg-config --exists opencv4 libturbojpeg 2>/dev/null && command -v g++ >/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      g++ pkg-config libopencv-dev libturbojpeg0-dev >/dev/null
  else
    echo "FFCV needs: g++ pkg-config libopencv-dev libturbojpeg0-dev" >&2
    return 1
  fi
}

# What the disk gives to one long read: bench/log.py compares with it.
if ! command -v fio >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends fio >/dev/null; } \
      || echo "fio could not be installed: left out of this run" >&2
  else
    echo "fio is not installed: left out of this run; hint: apt-get install fio" >&2
  fi
fi

if [ ! -e "$stamp" ] || [ bench/requirements.txt -nt "$stamp" ]; then
  [ -x $peers/bin/python ] || "$python" -m venv $peers
  echo "installing the peers into $peers (a few minutes and 8 GB the first time)"
  $peers/bin/pip install --quiet --requirement bench/requirements.txt
  touch "$stamp"
fi
if [ ! -e "$ffcv_stamp" ] || [ bench/requirements-ffcv.txt -nt "$ffcv_stamp" ]; then
  if ffcv_libraries && $peers/bin/pip install --quiet \
    --constraint bench/requirements.txt --requirement bench/requirements-ffcv.txt; then
    touch "$ffcv_stamp"
  else
    echo "FFCV could not be installed: left out of this run" >&2
  fi
fi
.venv/bin/maturin build --release --quiet --out .data/wheels
$peers/bin/pip install --quiet --no-deps --force-reinstall .data/wheels/forebay-*.whl
cargo build --quiet --release --package forebay-testkit --bins
cargo build --quiet --release --package forebay-plan --example randperm
cargo build --quiet --release --package forebay-prepare --example bare_loop
cargo build --quiet --release --package forebay-cache --example keep
