# SPDX-License-Identifier: Apache-2.0
"""Checks what ptxas said of each kernel: registers that spill, or arrays that
lie in local memory, cost a multiple of the kernel's traffic.

  check_ptxas.py FOLDER      of the objects of a build"""
import pathlib
import re
import subprocess
import sys

# Kernels that may use local memory: an architecture, a part of the name.
ALLOWED = (
    # The reduction of large angles.
    ("sm_", "CircleOp"), ("sm_", "NormalOf"),
    # Some bytes on Blackwell, for which nothing is tuned so far.
    ("sm_100a", "RowSumsKernel"), ("sm_100a", "OutputsKernel"),
    ("sm_100a", "TileKernel"), ("sm_100a", "NormKernel"),
    ("sm_100a", "EncodeKernel"), ("sm_100a", "SegmentsKernel"),
    ("sm_100a", "ScoresWithGradKernel"))

COMPILING = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
USED = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                  r"(\d+) bytes spill loads")


def kernels(text):
    """Yields (symbol, architecture, [stack, stores, loads])."""
    symbol = architecture = None
    for line in text.splitlines():
        if match := COMPILING.search(line):
            symbol, architecture = match.groups()
        elif (match := USED.search(line)) and symbol:
            yield symbol, architecture, [int(n) for n in match.groups()]
            symbol = None


def readable(symbol):
    return subprocess.run(["c++filt", symbol], check=True, capture_output=True,
                          text=True).stdout.strip()


def main():
    logs = sorted(pathlib.Path(sys.argv[1]).rglob("*.ptxas"))
    count, faults = 0, []
    for log in logs:
        for symbol, architecture, used in kernels(log.read_text()):
            count += 1
            allowed = any(architecture.startswith(start) and part in symbol
                          for start, part in ALLOWED)
            if any(used) and not allowed:
                faults.append(
                    f"{log.stem}: {readable(symbol)} ({architecture}): expected "
                    "no local memory, got a stack frame of {} bytes, {} bytes "
                    "of spill stores and {} of loads".format(*used))
    if not count:
        faults.append(f"no kernel in {sys.argv[1]}")
    print("\n".join(faults) or
          f"ptxas: {count} kernels in {len(logs)} files use no local memory")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
