#!/usr/bin/env bash
# Runs the Rust tests of the crates that have `unsafe` code under sanitizers:
#
#   sanitize.sh [address|thread|miri]...        default: all of them
#
#   address  AddressSanitizer with LeakSanitizer, on the stable toolchain
#   thread   ThreadSanitizer, on the nightly toolchain, which rebuilds the standard library for it;
#            without that toolchain valgrind's helgrind
#   miri     Miri, on the nightly toolchain, for the modules that it can run
#
# The nightly toolchain and its components are installed through rustup where they are missing. A
# check whose tools cannot be had is skipped, and the last lines say so. NIGHTLY names another
# nightly toolchain; SANITIZE_CRATES names fewer crates for address and thread than "cache engine
# prepare"; SANITIZE_TESTS holds arguments for the tests, such as a part of their names.
#
# The C code of libjpeg-turbo is built for the same sanitizer, its assembler code is not.
set -euo pipefail
cd "$(dirname "$0")/.."

crates=()
for crate in ${SANITIZE_CRATES:-cache engine prepare}; do
    crates+=(--package "forebay-$crate")
done
# The model runs its threads one after the other, each on a stack that loom switches to by itself:
# there is no race to find, and many thousand runs of it would take long.
skipped=(--skip model::)
# They compare the memory of the whole process with a bound, and a sanitizer's own memory, a multiple
# of the program's, would count.
skipped+=(--skip an_index_of_millions_is_small_and_soon_ready)
skipped+=(--skip a_budget_larger_than_the_machine_costs_nothing_until_used)
nightly=${NIGHTLY:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')
directory=${CARGO_TARGET_DIR:-$PWD/target}/sanitize
read -ra tests <<< "${SANITIZE_TESTS:-}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=()

# Whether the nightly toolchain has these components; what is missing is installed if it can be.
nightly_has() {
    command -v rustup > /dev/null || return 1
    rustup run "$nightly" rustc --version > /dev/null 2>&1 \
        || rustup toolchain install "$nightly" --profile minimal || return 1
    rustup component add --toolchain "$nightly" "$@"
}

# Runs a command whose output is that of tests, all of them, and then ends if one failed.
run() {
    "$@" 2>&1 | tee --append "$log"
}

# Adds a line to the summary: the check, how many tests ran since the last one, and by which tool.
clean() {
    local count
    count=$(awk '/^test result: ok/ { count += $4 } END { print count + 0 }' "$log")
    summary+=("$1: clean, $count tests, $2")
    : > "$log"
}

# The flags are for this target alone, so that build scripts and macros run without them.
address() {
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes"
    run cargo test --no-fail-fast --target "$host" --target-dir "$directory/address" \
        "${crates[@]}" --lib --tests -- "${skipped[@]}" "${tests[@]}"
    unset RUSTC_BOOTSTRAP RUSTFLAGS
    clean address "$(rustc --version)"
}

# One test at a time: memory is mapped by system calls that ThreadSanitizer does not see, so memory
# that one test gave back and another one got looks like shared memory to it.
thread() {
    export RUST_TEST_THREADS=1
    if nightly_has rust-src; then
        export RUSTFLAGS="-Zsanitizer=thread -Cforce-frame-pointers=yes"
        run cargo "+$nightly" test --no-fail-fast -Zbuild-std --target "$host" \
            --target-dir "$directory/thread" \
            "${crates[@]}" --lib --tests -- "${skipped[@]}" "${tests[@]}"
        unset RUSTFLAGS
        clean thread "$(rustc "+$nightly" --version)"
    elif command -v valgrind > /dev/null; then
        local runner
        runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<< "$host")_RUNNER
        run env "$runner=valgrind --tool=helgrind --error-exitcode=1 --quiet" \
            cargo test --no-fail-fast --target "$host" --target-dir "$directory/helgrind" \
            "${crates[@]}" --lib --tests -- "${skipped[@]}" "${tests[@]}"
        clean "thread (by helgrind, without a nightly toolchain)" "$(valgrind --version)"
    else
        summary+=("thread: SKIPPED, neither a nightly toolchain nor valgrind; hint: install rustup")
    fi
    unset RUST_TEST_THREADS
}

# Miri runs no foreign code, maps no files and knows no io_uring: what is left are the memory tier,
# the buffers of the log and the slabs of batches.
miri() {
    if ! nightly_has miri rust-src; then
        summary+=("miri: SKIPPED, no nightly toolchain with miri; hint: install rustup")
        return
    fi
    export MIRIFLAGS=-Zmiri-disable-isolation
    local miri=(cargo "+$nightly" miri test --target-dir "$directory/miri")
    run "${miri[@]}" --package forebay-cache --lib -- memory:: log::buffer:: "${tests[@]}"
    run "${miri[@]}" --package forebay-cache --test tier --test model --test stress -- "${tests[@]}"
    run "${miri[@]}" --package forebay-engine --lib -- slab:: "${tests[@]}"
    unset MIRIFLAGS
    clean miri "$(cargo "+$nightly" miri --version)"
}

[ $# -gt 0 ] || set -- address thread miri
for check; do
    case $check in
        address | thread | miri) "$check" ;;
        *) echo "there is no check named $check; hint: address, thread or miri" >&2 && exit 2 ;;
    esac
done
printf '%s\n' "${summary[@]}"
