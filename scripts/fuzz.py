# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the readers of files and flags under AddressSanitizer and UBSan.

`fuzz` lists the targets (tests/fuzz/), `fuzz TARGET SECONDS` runs one, `fuzz
all SECONDS` one after the other. What is worth keeping stays in
build/fuzz/corpus/TARGET and the next run starts from it; what is a finding is
written to build/fuzz/findings/TARGET: a crash, a sanitizer's report, an
exception that is not ours, more than 10 seconds, more than 2 GiB. A finding
that is understood goes, as small as it can be, to
tests/fuzz/regressions/TARGET, which test_fuzz replays. Exit code 0: none."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import fuzz_seeds

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/fuzz"
FUZZER = BUILD / "fuzzer"
REGRESSIONS = ROOT / "tests/fuzz/regressions"
SECONDS_EACH, MIB, MIB_AT_ONCE = 10, 2048, 1024
# Bytes of the largest input that is made up.
MAX_LENGTH = {"model": 16384, "tokens": 1024, "command_line": 512}
RESULTS = {
    "executions": r"number_of_executed_units: *(\d+)",
    "peak_mib": r"peak_rss_mb: *(\d+)",
    "slowest_ms": r"slowest_ms: *([\d.]+)",
}


def targets():
    return sorted(p.name for p in REGRESSIONS.iterdir())


def fuzz(target, seconds, runs):
    """One run from the corpus, the seeds and the regressions; prints what it
    came to. True without a finding."""
    corpus, found, seeds = (BUILD / kind / target
                            for kind in ("corpus", "findings", "seeds"))
    for folder in (corpus, found, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    fuzz_seeds.write(target, seeds)
    before = set(found.iterdir())
    command = [
        FUZZER, corpus, seeds, REGRESSIONS / target,
        f"-max_total_time={seconds}", f"-runs={runs}",
        f"-timeout={SECONDS_EACH}", f"-rss_limit_mb={MIB}",
        f"-malloc_limit_mb={MIB_AT_ONCE}", f"-artifact_prefix={found}/",
        f"-max_len={MAX_LENGTH.get(target, 4096)}", "-reload=0",
        "-print_final_stats=1", "-verbosity=1"]
    environment = {**os.environ, "ONNX_FP8_FUZZ_TARGET": target,
                   # Debian's Protobuf is not instrumented.
                   "ASAN_OPTIONS": "allocator_may_return_null=1:"
                                   "detect_container_overflow=0",
                   "ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-16",
                   "UBSAN_OPTIONS": "print_stacktrace=1"}
    log = BUILD / f"{target}.log"
    with log.open("w") as out:
        code = subprocess.run(command, stdout=out, stderr=out,
                              env=environment, check=False).returncode
    text = log.read_text(errors="replace")
    result = {}
    for name, pattern in RESULTS.items():
        match = re.search(pattern, text)
        result[name] = float(match.group(1)) if match else float("nan")
    line = ", ".join(f"{name} {value:,.0f}" for name, value in result.items())
    new = sorted(set(found.iterdir()) - before)
    print(f"{target}: {line}", flush=True)
    if code == 0 and not new:
        return True
    print(f"{target}: a finding; {log.relative_to(ROOT)} says where:",
          *(f"  {path.relative_to(ROOT)}" for path in new), sep="\n")
    return False


def main():
    parser = argparse.ArgumentParser(
        prog="./dev fuzz", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET",
                        choices=targets() + ["all"])
    parser.add_argument("seconds", metavar="SECONDS", type=int)
    parser.add_argument("--runs", type=int, default=-1,
                        help="end after so many executions")
    args = parser.parse_args()
    chosen = targets() if args.target == "all" else [args.target]
    good = [fuzz(target, args.seconds, args.runs) for target in chosen]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
