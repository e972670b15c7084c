#!/usr/bin/env bash
# Measures the tensor suites on a GPU machine that has frameworks but no network.
#
#   tools/gpu_tables.sh WHEELS OUT ['SECONDS SUITE OPTION…' …]
#
# WHEELS holds what the driver needs (the extra `bench` without scipy, which comes with JAX, and
# without matplotlib, which only charts need), for any Python. The frameworks are those of $PYTHON.
# Each suite gets so many seconds and is then interrupted as by Ctrl-C (code 124), which keeps what
# it has: allow a minute more for its end. OUT gets the store, packed, after each suite, and one log.
# Options of a suite come after those that all suites share, and win; '200 operators --resume latest'
# goes on with a run if WORK is the folder of the call before. DEVICE=cpu is a rehearsal.
set -uo pipefail
set -f  # patterns among options are not names of files

wheels=$1 out=$2
shift 2
suites=("$@")
if [ ${#suites[@]} -eq 0 ]; then
    suites=(
        "200 modules"
        "300 cnn-layers"
        "300 fused --sizes medium --processes 2 --rounds 2"
        "480 cnn-models --processes 1 --timeout 300"
        "480 operators --sizes large --frameworks torch,torch-cuda-graph,jax --processes 1 --rounds 2"
    )
fi
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
work=${WORK:-$(mktemp -d)}
frameworks=torch,torch-channels-last,torch-compile,torch-cuda-graph,jax
store=$work/gpu.sqlite
mkdir -p "$out" "$work"
exec > >(tee -a "$out/log.txt") 2>&1

# Several workers of a framework compile the same: all but the first find it done.
export JAX_COMPILATION_CACHE_DIR=$work/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton
export TAPEGRAD_CACHE=${TAPEGRAD_CACHE:-$work/cache} COLUMNS=200 PYTHONUNBUFFERED=1

# Wheels are unpacked, since not every environment has a pip.
"$python" - "$wheels" "$work/packages" <<'PY' || exit 1
import sys, zipfile
from pathlib import Path

own = f"cp{sys.version_info.major}{sys.version_info.minor}"
for wheel in Path(sys.argv[1]).glob("*.whl"):
    interpreter, abi = wheel.stem.split("-")[-3:-1]
    if interpreter == own or abi == "abi3" or (abi == "none" and "py3" in interpreter):
        zipfile.ZipFile(wheel).extractall(sys.argv[2])
PY
export PYTHONPATH=$PWD/src:$work/packages

pack() {
    "$python" - "$store" "$out/gpu.sqlite.xz" <<'PY'
import lzma, shutil, sys

with open(sys.argv[1], "rb") as plain, lzma.open(sys.argv[2], "wb", preset=1) as packed:
    shutil.copyfileobj(plain, packed)
PY
}

"$python" -m tapegrad.cli bench machine || exit 1
for entry in "${suites[@]}"; do
    read -r seconds suite options <<<"$entry"
    shared="--device $device --frameworks $frameworks --threads 4 --timeout 120"
    case " $options " in *" --resume "*) shared="" ;; esac
    echo "== $(date +%T) $entry"
    # shellcheck disable=SC2086  options are words
    timeout -s INT -k 90 "$seconds" "$python" -m tapegrad.cli bench run "$suite" $shared $options \
        --store "$store"
    code=$?
    echo "== $(date +%T) $suite ended with code $code"
    [ -f "$store" ] && pack
done
