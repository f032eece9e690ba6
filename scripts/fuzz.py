# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the readers of files and flags under AddressSanitizer and UBSan.

`fuzz` lists the targets (tests/fuzz/), `fuzz TARGET SECONDS` runs one, `fuzz
all SECONDS` runs one after the other. Inputs worth keeping stay in
build/fuzz/corpus/TARGET, and the next run starts from them. Findings are written
to build/fuzz/findings/TARGET: a crash, a sanitizer's report, an exception that
is not ours, more than 10 seconds, more than 2 GiB. When a finding is understood,
make it as small as possible and put it into tests/fuzz/regressions/TARGET, which
test_fuzz replays. build/fuzz/totals.md adds up all runs in build/fuzz. Exit code
0: no finding."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import fuzz_seeds

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/fuzz"
FUZZER = BUILD / "fuzzer"
RUNS = BUILD / "runs.jsonl"
REGRESSIONS = ROOT / "tests/fuzz/regressions"
SECONDS_EACH, MIB, MIB_AT_ONCE = 10, 2048, 1024
# Bytes of the largest input that the fuzzer makes.
MAX_LENGTH = {"model": 16384, "tokens": 1024, "command_line": 512,
              "ort_checkpoint": 8192}
INTERRUPTED = 72  # libFuzzer's exit code
RESULTS = {
    "executions": r"number_of_executed_units: *(\d+)",
    "peak_mib": r"peak_rss_mb: *(\d+)",
    "slowest_ms": r"slowest_ms: *([\d.]+)",
}


def targets():
    return sorted(p.name for p in REGRESSIONS.iterdir())


def arguments(target, corpus, found, seeds, seconds, runs):
    return [
        FUZZER, corpus, seeds, REGRESSIONS / target,
        f"-max_total_time={seconds}", f"-runs={runs}",
        f"-timeout={SECONDS_EACH}", f"-rss_limit_mb={MIB}",
        f"-malloc_limit_mb={MIB_AT_ONCE}", f"-artifact_prefix={found}/",
        f"-max_len={MAX_LENGTH.get(target, 4096)}", "-reload=0",
        # Weighing inputs by rare branches took four fifths of `model`'s time.
        "-entropic=0",
        "-print_final_stats=1", "-verbosity=1"]


def environment(target, scratch):
    return {**os.environ, "ONNX_FP8_FUZZ_TARGET": target, "TMPDIR": scratch,
            # Each throw searches the fake stacks: a fifth of the time.
            "ASAN_OPTIONS": "allocator_may_return_null=1:"
                            "detect_stack_use_after_return=0",
            "ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-16",
            "UBSAN_OPTIONS": "print_stacktrace=1"}


def run(command, target, log):
    """Returns the exit code. Ctrl-C, which the fuzzer sees too, and SIGTERM end
    the fuzzer, with its numbers in the log."""
    # Targets write and read files: in memory, if there is a place for that.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as scratch, \
            log.open("w") as out:
        with subprocess.Popen(command, stdout=out, stderr=out,
                              env=environment(target, scratch)) as process:
            signal.signal(signal.SIGINT, lambda *_: None)
            signal.signal(signal.SIGTERM,
                          lambda *_: process.send_signal(signal.SIGINT))
            return process.wait()


def fuzz(target, seconds, runs):
    """Runs once from the corpus, the seeds and the regressions; prints the
    result. Returns the exit code."""
    corpus, found, seeds = (BUILD / kind / target
                            for kind in ("corpus", "findings", "seeds"))
    for folder in (corpus, found, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    fuzz_seeds.write(target, seeds)
    before = set(found.iterdir())
    log = BUILD / f"{target}.log"
    begin = time.monotonic()
    code = run(arguments(target, corpus, found, seeds, seconds, runs), target,
               log)
    result = {"target": target, "seconds": time.monotonic() - begin}
    text = log.read_text(errors="replace")
    for name, pattern in RESULTS.items():
        match = re.search(pattern, text)
        result[name] = float(match.group(1)) if match else 0
    new = sorted(set(found.iterdir()) - before)
    result["findings"] = len(new)
    with RUNS.open("a") as out:
        out.write(json.dumps(result) + "\n")
    print(f"{target}: " + ", ".join(f"{key} {value:,.0f}" for key, value in
                                    result.items() if key != "target"),
          flush=True)
    if new or code not in (0, INTERRUPTED):
        print(f"{target}: a finding; {log.relative_to(ROOT)} says where:",
              *(f"  {path.relative_to(ROOT)}" for path in new), sep="\n",
              flush=True)
        return 1
    return code


def totals():
    """All runs as a table."""
    lines = ["| target | executions | seconds | a second | peak MiB | "
             "slowest ms | findings |", "|---|--:|--:|--:|--:|--:|--:|"]
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()]
    for target in targets():
        own = [run for run in runs if run["target"] == target]
        if not own:
            continue
        add, most = ({key: by(run[key] for run in own) for key in own[0]
                      if key != "target"} for by in (sum, max))
        lines.append(
            f"| {target} | {add['executions']:,.0f} | {add['seconds']:,.0f} | "
            f"{add['executions'] / add['seconds']:,.0f} | "
            f"{most['peak_mib']:,.0f} | {most['slowest_ms']:,.0f} | "
            f"{add['findings']} |")
    return "\n".join(lines) + "\n"


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
    codes = []
    for target in chosen:
        codes.append(fuzz(target, args.seconds, args.runs))
        if codes[-1] == INTERRUPTED:
            break
    (BUILD / "totals.md").write_text(totals())
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
