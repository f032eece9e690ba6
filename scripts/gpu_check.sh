#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times the provider cuda on a machine with a GPU: one call of nine
# minutes, which needs Python's standard library only. Writes a report
# in Markdown and a file of figures; exits 1 if a check fails. Programs and
# packages that the machine lacks are named and left out, and so is what the
# budget of seconds cuts off.
#
#   scripts/gpu_check.sh --pack [--torchao] [--history FOLDER]
#   scripts/gpu_check.sh [REPORT] [--json FILE] [--budget SECONDS]
#                        [--only SECTIONS] [--logs FOLDER] [--history FOLDER]
#                        [--compile-cache FOLDER] [--provider cpu] [--quick]
#
# --pack runs where the programs were built (docs/cuda.md). It copies onnx-fp8
# and its libonnx_fp8_cuda.so, test_cuda_device and the libraries that they are
# linked to, except the compiler's and C's, into build/release/pack, without
# symbols, compressed, and writes the graphs of large models beside them. The
# tree and this folder are all that must travel. --torchao adds that package,
# --history what earlier machines have shown and compiled. --logs keeps all that
# the programs print, which a report only quotes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
built=build/release pack=build/release/pack
files=(onnx-fp8 libonnx_fp8_cuda.so test_cuda_device)

make_pack() {
  local torchao='' history=''
  while (($#)); do
    case $1 in
      --torchao) torchao=1 ;;
      --history) history=${2:?--history needs a folder}; shift ;;
      *) echo "--pack: expected --torchao or --history, got $1" >&2; return 2 ;;
    esac
    shift
  done
  if [[ $(realpath -m "${history:-.}") == "$PWD/$pack"* ]]; then
    echo "--history: expected a folder outside of $pack, which is removed" >&2
    return 2
  fi
  rm -rf "$pack"
  mkdir -p "$pack/libraries"
  local file
  for file in "${files[@]}"; do
    strip -o "$pack/$file" "$built/$file" || return 1
  done
  ldd "${files[@]/#/$built/}" | awk '$3 ~ "^/" { print $3 }' | sort -u |
    grep -v -E '/lib(c|m|gcc_s|stdc\+\+)\.so' |
    xargs -r cp -t "$pack/libraries" || return 1
  strip "$pack"/libraries/* 2>/dev/null
  gzip "${files[@]/#/$pack/}" || return 1
  # Graphs without weights. The build's Python has the package onnx.
  local python
  python=$(sed -n 's/^ONNX_FP8_PYTHON:[A-Z]*=//p' "$built/CMakeCache.txt" \
    2>/dev/null)
  local graph
  for graph in llama3_8b_4 llama3_8b; do
    PYTHONPATH=scripts "${python:-python3}" -B -m bench.graphs "$graph" \
      "$pack/$graph.onnx" 2>/dev/null ||
      echo "$pack: without the graph of $graph, python3 lacks onnx" >&2
  done
  if [[ $history ]]; then cp -r "$history" "$pack/history" || return 1; fi
  if [[ $torchao ]]; then
    # Its line, and the lines of its hashes.
    python3 -m pip install -q --require-hashes --only-binary :all: --no-deps \
      --no-compile --target "$pack/python" -r <(
        sed -n '/^torchao==/,/[^\]$/p' scripts/requirements-bench.txt) || return 1
    # Kernels of its own, which its float8 recipes do without.
    find "$pack/python" -name '*.so' -delete
  fi
  local size tree
  size=$(du -sm "$pack" | cut -f1)
  tree=$(git ls-files -z | xargs -0 du -cm --apparent-size | tail -n 1)
  echo "$pack: $size MiB; files of the tree: ${tree%%[[:space:]]*} MiB"
  ((size <= 50)) || { echo "expected at most 50 MiB in $pack"; return 1; }
}

if [[ ${1:-} == --pack ]]; then
  shift
  make_pack "$@"
  exit
fi

programs=$built
if [[ -e $pack/onnx-fp8.gz ]]; then
  gunzip --keep --force "$pack"/*.gz
  programs=$pack
  export LD_LIBRARY_PATH=$PWD/$pack/libraries:${LD_LIBRARY_PATH:-}
  export PYTHONPATH=$PWD/$pack/python:${PYTHONPATH:-}
fi
# Both sides shall run the same libraries: PyTorch's packages' come first, if
# there are any.
for library in cublasLt cudnn nvrtc nccl cupti; do
  folder=$(python3 -c 'import nvidia, pathlib, sys
print(next(file.parent for root in nvidia.__path__
           for file in pathlib.Path(root).rglob(f"lib{sys.argv[1]}.so.*")))' \
    "$library" 2>/dev/null) &&
    export LD_LIBRARY_PATH=$folder:${LD_LIBRARY_PATH:-}
done
export PYTHONPATH=$PWD/scripts:${PYTHONPATH:-}
exec python3 -B -m gpu.check --binary "$PWD/$programs/onnx-fp8" \
  --tests "$PWD/$programs/test_cuda_device" "$@"
