# SPDX-License-Identifier: Apache-2.0
"""Breaks lines of C++ in a copy of the tree and expects the tests to fail.

A seed draws mutants: an operator or a number is changed, a condition negated,
another value returned, a statement deleted. All of them are built at once into
build/mutate, and a switch chooses the broken one. Each runs through the suites
of the tests that reach its line. Exit code 1: one survived that is not listed in
scripts/equivalent_mutants.txt."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from mutation import suites
from mutation.operators import draw, mutants_of
from mutation.tokens import Source
from mutation.workspace import Workspace, files_of, git

# Folder → the tests of ctest that should notice; the closest folder counts. The
# tests that run the program (test_python_a_to_l, test_bad_input) take long: --tests.
TESTS = {
    "base": ("test_base", "test_cli"),
    "cli": ("test_cli",),
    "collectives": ("test_collectives",),
    "data": ("test_data",),
    "graph": ("test_graph", "test_onnx_fp8"),
    "graph/onnx": ("test_graph", "test_fuzz"),
    "graph/schemas": ("test_graph", "test_providers"),
    "onnx_fp8": ("test_onnx_fp8", "test_providers"),
    "optimizers": ("test_optimizers",),
    "providers": ("test_providers",),
    "providers/cpu/ops": ("test_providers", "test_optimizers"),
    "providers/cuda": ("test_cuda_plain",),
    "providers/ort": ("test_ort",),
    "python": ("test_python_package",),
    "training": ("test_training",),
}
CUDA = "providers/cuda"  # built for the emulated device, in a folder of its own
PRODUCT = re.compile(r"(?!tests/|samples/|build/|cmake/).*\.(?:cc|h|cu)$")
VERDICTS = ("killed", "timed out", "survived", "not reached", "not compilable",
            "equivalent")


def product_files(root, paths):
    """The C++ files of the product in these folders, or in all."""
    files = sorted(f for f in files_of(root) if PRODUCT.match(f) and any(
        f == p or f.startswith(p + "/") for p in paths))
    if not files:
        sys.exit(f"mutate: no C++ files of the product in {' '.join(paths)}")
    return files


def default_base(root):
    """Where this branch leaves main; on main the commit before, or the last one
    if there are changes since."""
    head = git(root, "rev-parse", "HEAD").strip()
    found = subprocess.run(["git", "merge-base", "HEAD", "main"], cwd=root,
                           capture_output=True, text=True).stdout.strip()
    if found and found != head:
        return found
    return "HEAD" if git(root, "status", "--porcelain").strip() else "HEAD~1"


def changed_lines(root, base):
    """File → the numbers of the lines that the working tree changed."""
    lines, file = {}, None
    for line in git(root, "diff", "-U0", "--no-color", "--no-ext-diff",
                    "--dst-prefix=b/", base).splitlines():
        if line.startswith("+++ "):
            file = line[6:] if line.startswith("+++ b/") else None
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            lines.setdefault(file, set()).update(range(first, first + count))
    for file in git(root, "ls-files", "-z", "--others",
                    "--exclude-standard").split("\0"):
        if PRODUCT.match(file):
            text = (root / file).read_text(encoding="utf-8", errors="replace")
            lines[file] = set(range(1, text.count("\n") + 2))
    return {f: n for f, n in lines.items() if f and PRODUCT.match(f)}


def equivalents(root):
    """The keys of the mutants in scripts/equivalent_mutants.txt."""
    path, found = root / "scripts/equivalent_mutants.txt", set()
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for block in re.split(r"\n\s*\n", text):
        lines = [s for s in block.splitlines() if s and not s.startswith("#")]
        fields = {s.split(":", 1)[0]: s.split(":", 1)[1].strip()
                  for s in lines if ":" in s}
        if not lines:
            continue
        if list(fields) != ["file", "original", "mutated", "reason"] or \
                not fields["reason"]:
            sys.exit(f"mutate: {path}: expected the lines file, original, "
                     f"mutated and reason, got\n{block}")
        found.add((fields["file"], fields["original"], fields["mutated"]))
    return found


def drawn(root, args, listed):
    """The sources, and the mutants of this run. Names the keys in `listed` that
    no mutant has."""
    if args.changed is not None:
        lines = changed_lines(root, args.changed or default_base(root))
        files = sorted(f for f in lines if (root / f).is_file())
    else:
        lines, files = None, product_files(root, args.paths)
    sources = {f: Source(f, (root / f).read_text(encoding="utf-8"))
               for f in files}
    all_mutants = [m for f in files for m in mutants_of(sources[f])]
    for file, original, mutated in sorted(listed - {m.key for m in all_mutants}):
        if file in sources:
            print(f"stale: scripts/equivalent_mutants.txt: {file} has no "
                  f"mutant `{original}` → `{mutated}`")
    mutants = [m for m in all_mutants
               if lines is None or m.line in lines[m.file]]
    return sources, draw(mutants, args.count, args.seed)


def tests_of(file, given):
    if given:
        return given
    for folder in Path(file).parents:
        if str(folder) in TESTS:
            return TESTS[str(folder)]
    return ()


def key_of(workspace, names):
    """Changes with any file of the copy."""
    key = hashlib.sha256(repr(sorted(names)).encode())
    for _, path in workspace.files():
        key.update(str(path).encode() + b"\0" + path.read_bytes())
    return key.hexdigest()


def run_group(root, sources, numbered, args, cuda):
    """Builds the mutants and runs their tests. Yields (mutant, outcome, seconds)."""
    options = os.environ.get("ONNX_FP8_CMAKE_OPTIONS", "").splitlines()
    work = Workspace(root, sources, numbered, options, cuda)
    start = time.monotonic()

    def say(words):
        print(f"[{time.monotonic() - start:4.0f} s] {words}", flush=True)

    work.write()
    work.configure()
    known = suites.commands(work)
    names = sorted({t for m in work.mutants.values()
                    for t in tests_of(m.file, args.tests)})
    missing = [t for t in names if t not in known]
    names = [t for t in names if t in known]
    if missing or not names:
        print(f"left out: {' '.join(missing) or 'tests'}: not in this build")
    if not names:
        for mutant in work.mutants.values():
            yield mutant, suites.Outcome("not reached", ""), 0
        return
    say("which mutants compile?")
    lost = work.drop_not_compilable()
    work.write()
    say(f"building {' '.join(names)} with {len(work.mutants)} mutants")
    lost += work.build_targets(suites.targets(names, known))
    for mutant in lost:
        yield mutant, suites.Outcome("not compilable", ""), 0
    found = [s for t in names for s in suites.suites_of(t, known, work.copy)]
    say(f"which of them do {len(found)} suites reach?")
    reached = suites.record(found, work.copy, work.build / "reached.json",
                            key_of(work, names))
    for suite, seen in reached.items():
        if not seen.passed:
            print(f"left out: {suite} fails while nothing is broken")
    say(f"running {len(work.mutants)} mutants")

    def one(number):
        begin = time.monotonic()
        outcome = suites.judge(number, reached, work.copy)
        return work.mutants[number], outcome, time.monotonic() - begin

    with concurrent.futures.ThreadPoolExecutor(suites.WORKERS) as pool:
        yield from pool.map(one, sorted(work.mutants))
    say("done")


def report(results, args):
    """Prints what is left to do. Returns the exit code."""
    count = {verdict: 0 for verdict in VERDICTS}
    for mutant, outcome, _ in results:
        count[outcome.verdict] += 1
    for verdict in ("not compilable", "not reached", "survived"):
        for mutant, outcome, _ in results:
            if outcome.verdict == verdict:
                print(f"{verdict}: {mutant}")
    print(", ".join(f"{n} {verdict}" for verdict, n in count.items()))
    if args.json:
        Path(args.json).write_text(json.dumps({
            "seed": args.seed, "counts": count, "mutants": [
                {"file": m.file, "line": m.line, "column": m.column,
                 "operator": m.operator, "original": m.original, "mutated": m.mutated,
                 "verdict": o.verdict, "by": o.case, "seconds": round(s, 1)}
                for m, o, s in results]}, indent=1, ensure_ascii=False) + "\n")
    return 1 if count["survived"] else 0


def arguments():
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="FOLDER_OR_FILE")
    parser.add_argument("--changed", nargs="?", const="", metavar="BASE",
                        help="only lines that the working tree changed since "
                        "BASE (default: where the branch leaves main)")
    parser.add_argument("--count", type=int, default=50,
                        help="how many mutants (default 50)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=lambda s: tuple(s.split(",")),
                        help="these tests of ctest, not the folder's own: "
                        "test_cli,test_python_a_to_l")
    parser.add_argument("--list", action="store_true",
                        help="only print the mutants that are drawn")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    parser.add_argument("--root", type=Path, help="of another tree",
                        default=Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    args.paths = [p.rstrip("/") for p in args.paths]
    if (args.changed is None) == (not args.paths):
        parser.error("expected folders or files, or --changed")
    return args


def main():
    args = arguments()
    root = args.root.resolve()
    listed = equivalents(root)
    sources, mutants = drawn(root, args, listed)
    if args.list:
        for mutant in mutants:
            print(mutant)
        return 0
    results, groups = [], ({}, {})
    for number, m in enumerate(mutants, 1):
        if m.key in listed:
            results.append((m, suites.Outcome("equivalent", ""), 0))
        else:
            groups[m.file.startswith(CUDA + "/")][number] = m
    for cuda, numbered in enumerate(groups):
        if not numbered:
            continue
        for mutant, outcome, seconds in run_group(root, sources, numbered, args,
                                                  bool(cuda)):
            results.append((mutant, outcome, seconds))
            print(f"{outcome.verdict}: {mutant}" + (
                f"  [{outcome.case}]" if outcome.case else ""), flush=True)
    print()
    return report(results, args)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
