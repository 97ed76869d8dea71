#!/usr/bin/env bash
# Feeds the decoders with mutated images until stopped, or for so many seconds: fuzz.sh [SECONDS]
#
# The golden images of the tests are what it starts from; what it finds beyond them is kept in
# fuzz/corpus, and an input that crashes, hangs for a second or takes more than 1 GB in
# fuzz/artifacts. It takes a C++ compiler, for libFuzzer, but no nightly Rust: LLVM's coverage pass
# is in the stable one too.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

flags=(--cfg fuzzing -Ccodegen-units=1 -Coverflow-checks=on -Cdebug-assertions=on)
flags+=(-Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
# A target of its own, so that build scripts and macros are left without the flags.
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="${flags[*]}" cargo build --release --target "$target"

mkdir -p corpus/decode artifacts/decode
for image in ../crates/prepare/tests/golden/*; do
    name=$(basename "$image")
    case $name in *.ppm) [[ $name == *.*.ppm ]] && continue ;; esac
    for choice in 0 1 2 3; do
        { printf "%b" "\\x0$choice"; cat "$image"; } > "corpus/decode/$name-$choice"
    done
done
exec "target/$target/release/decode" corpus/decode \
    -artifact_prefix=artifacts/decode/ -timeout=1 -rss_limit_mb=1024 -max_total_time="${1:-0}"
