#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the provider cuda on a machine with a GPU, from a tree whose
# build/release holds onnx-fp8 and test_cuda_device (./dev build makes them, on
# this or another machine). Prints a report in Markdown; exits 1 if a check
# fails. Programs that the machine lacks are named and left out.
#
#   scripts/gpu_check.sh --pack
#   scripts/gpu_check.sh [REPORT]
#
# --pack runs where the programs were built. It copies the libraries that they
# are linked to, but for those of the compiler and of C, into
# build/release/libraries, which must travel too.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
report=${1:-/dev/stdout}
program=build/release/onnx-fp8 tests=build/release/test_cuda_device
libraries=build/release/libraries
failed=0

if [[ ${1:-} == --pack ]]; then
  mkdir -p "$libraries"
  ldd "$program" "$tests" | awk '$3 ~ "^/" { print $3 }' | sort -u |
    grep -v -E '/lib(c|m|gcc_s|stdc\+\+)\.so' | xargs cp -t "$libraries"
  exit
fi
export LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-}
# Where cuBLASLt is a Python package, the loader does not know its folder.
if ! ldconfig -p | grep -q libcublasLt; then
  folder=$(python3 -c 'import nvidia, pathlib
print(next(file.parent for root in nvidia.__path__
           for file in pathlib.Path(root).rglob("libcublasLt.so.*")))' \
    2>/dev/null) && LD_LIBRARY_PATH+=:$folder
fi

section() { printf '\n## %s\n\n' "$1"; }
# check NAME COMMAND...: its last lines, as text.
check() {
  section "$1"
  local code=0
  echo '```'
  "${@:2}" 2>&1 | tail -n 25
  code=${PIPESTATUS[0]}
  echo '```'
  if ((code)); then
    echo "failed with exit code $code"
    failed=1
  fi
}

{
  echo "# The provider cuda on a GPU"
  check "Machine" "$program" version
  check "Kernels and training beside the CPU" "$tests" --gtest_brief=1
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      check "compute-sanitizer $tool" compute-sanitizer --tool "$tool" \
        --error-exitcode 1 "$tests" --gtest_brief=1 \
        "--gtest_filter=*CudaKernelsTest*"
    done
  else
    section "compute-sanitizer"
    echo "left out: this machine lacks it"
  fi
  for dtype in float32 bfloat16; do
    check "Linear layers in $dtype, forward and backward" "$program" \
      bench linear --provider cuda --dtype "$dtype" --recipe tensorwise
  done
} >"$report"
exit $failed
