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
# WARM=SECONDS fills the compilers' caches for these suites first, in the sizes that they ask for, many
# cases at a time; its times are thrown away. COMPILE=REGEX chooses among the lines of `compiled`: XLA
# chooses algorithms of convolutions and products by trial, for which large ones need the GPU alone.
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
# What takes long to compile: suite, frameworks, cases, other options.
compiled=(
    "cnn-models jax "{resnet152,resnet101,resnet50,vgg19_bn,vgg16_bn,vgg19,vgg16,resnet34,resnet18}"?batch*"
    "cnn-layers torch-compile,jax "{"conv2d?1x*","conv2d?8x*",linear,batch_norm,"*pool2d"}
    "modules torch-compile,jax "{conv2d,linear,multi_head_attention,softmax}
    "fused torch-compile,jax "{"conv2d*","linear*","add*","batch_norm",relu,gelu,layer_norm,"*softmax*,nll_loss"}
    "operators jax "{conv1d,conv_transpose2d,"conv2d,conv2d_d*","conv2d_[gpsw]*","matmul,bmm,matvec",linear,"einsum,outer"}
    "operators jax "{"*_cell","multi_head_attention,scaled*","a*","b[acr]*,c[lru]*,conc*,cos*","d*,e[lmrx]*,f*"}
    "operators jax "{"g[ael]*,gro*,h*,i*,k*","l[12aeo]*","max*,me*,mi*,mo*,ms*,mul","n*,p*","r*","s[egioqu]*","s[lpt]*,scat*,t*,u*,v*,w*"}
)
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

# Lists what to compile for the suites that are asked for, in their sizes.
to_compile() {
    local suite options sizes
    for entry in "${suites[@]}"; do
        read -r _ suite options <<<"$entry"
        case " $options " in *" --resume "*) continue ;; esac
        sizes=$(grep -oE -- '--sizes[ =][^ ]+' <<<"$options")
        printf '%s\n' "${compiled[@]}" | grep "^$suite " | sed "s/\$/${sizes:+ $sizes}/"
    done | awk '!seen[$0]++' | grep -E "${COMPILE:-}"
}

compile_one() {
    set -f
    read -r suite names cases options <<<"$1"
    # shellcheck disable=SC2086  options are words
    "$python" -m tapegrad.cli bench run "$suite" --frameworks "$names" --filter "$cases" $options \
        --device "$DEVICE" --threads "$(nproc)" --processes 1 --rounds 1 --block 0.001 \
        --timeout 160 --store "$(mktemp -d -p "$warm")/results.sqlite" >/dev/null 2>&1
    local code=$?
    echo "== $(date +%T) compiled $1 (code $code)"
}

"$python" -m tapegrad.cli bench machine || exit 1
if [ -n "${WARM:-}" ]; then
    export -f compile_one
    warm=$(mktemp -d "$work/warm.XXXXXXXXXX") # a name that only these runs have in their commands
    export python warm DEVICE=$device
    to_compile | tr '\n' '\0' |
        timeout -s INT -k 10 "$WARM" xargs -0 -P "$(($(nproc) * 3 / 4))" -I{} bash -c 'compile_one "{}"'
    pkill -9 -f "$warm"
fi
for entry in "${suites[@]}"; do
    read -r seconds suite options <<<"$entry"
    shared="--device $device --frameworks $frameworks --threads $(nproc) --timeout 120"
    case " $options " in *" --resume "*) shared="" ;; esac
    echo "== $(date +%T) $entry"
    # shellcheck disable=SC2086  options are words
    timeout -s INT -k 90 "$seconds" "$python" -m tapegrad.cli bench run "$suite" $shared $options \
        --store "$store"
    code=$?
    echo "== $(date +%T) $suite ended with code $code"
    [ -f "$store" ] && pack
done
