#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build the C++ tests and run them; `address` (with undefined behaviour) or `thread`: under that sanitizer.
#
#   native/test.sh [plain | address | thread [TEST [ARGUMENT...]]]    all of them, or that one
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
kind=${1:-plain}
build=build/$kind
mkdir -p "$build"
exec 9> "$build.lock"
flock 9  # one builds, another one of these waits
generator=()
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja > /dev/null; then generator=(-G Ninja); fi
cmake -S native -B "$build" "${generator[@]}" -DTRAINMOVER_EXTENSION=OFF -DTRAINMOVER_TESTS=ON \
    -DTRAINMOVER_SANITIZER="${kind#plain}" > /dev/null
if [ $# -gt 1 ]; then
    cmake --build "$build" --parallel --target "$2"
    exec 9>&-
    exec "$build/$2" "${@:3}"
fi
cmake --build "$build" --parallel
exec 9>&-
ctest --test-dir "$build" --output-on-failure --no-tests=error

# The bits of a sum must not depend on the CPU, so no kernel may fuse a product and a sum.
if command -v objdump > /dev/null; then
    fused=$(objdump --disassemble "$build/libtmc.a" |
        grep -E '\s(vfn?m(add|sub)|fn?m(add|sub)|fml[as])' || true)
    if [ -n "$fused" ]; then
        printf 'native/test.sh: fused multiply-add in %s\n%s\n' "$build/libtmc.a" "$fused" >&2
        exit 1
    fi
fi
