#!/usr/bin/env bash
# The system packages that a build needs: installed when root with apt, else named.
set -euo pipefail
missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
# libjpeg-turbo is built with these; its fast paths are in assembler.
command -v cmake >/dev/null || missing+=(cmake)
command -v nasm >/dev/null || missing+=(nasm)
command -v cargo >/dev/null || { echo "forebay needs cargo (Rust 1.90 or later): see rustup.rs" >&2; exit 1; }
python=${PYTHON:-python3}
"$python" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "please install: ${missing[*]}" >&2
  exit 1
fi
