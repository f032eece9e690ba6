# SPDX-License-Identifier: Apache-2.0
"""Breaks one thing at a time in a copy of the tree and expects tests to fail.

The mutants are in scripts/mutants/. Each one is applied to a copy in
build/mutate, built, run through the tests that should notice it, and reverted.
Exit code 0: the tests killed every mutant."""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from mutant import load

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build/mutate"
BUILD = COPY / "build/release"
CUDA_SETTINGS = ("ONNX_FP8_CUDA_HOME", "ONNX_FP8_CUDNN_PACKAGES")
# A mutant may hang: it gets ten times the tests' time, and at least this.
LEAST_SECONDS = 30
# These run the program, and are narrowed by pytest's -k.
PYTEST = ("test_python", "test_bad_input", "test_step_files",
          "test_ort_newest", "test_python_package")
# How a test names the first case that failed, or in which it died.
FAILED = (r"^\[  FAILED  \] (\S+?),? ",
          r"^FAILED (?:tests/(?:python|ort)/)?([^\s\[]+)")
STARTED = r"^\[ RUN      \] (\S+)"


def sources():
    """All files that git does not ignore, from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others",
         "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [f for f in listed.split("\0") if f and (ROOT / f).is_file()]


def copy_tree(files):
    """Brings the copy up to date. Equal files keep their time stamps, so that
    a second run builds only changed files."""
    wanted = set(files)
    for path in list(COPY.rglob("*")):
        name = path.relative_to(COPY).as_posix()
        if path.is_file() and name not in wanted and not name.startswith(
                "build/"):
            path.unlink()
    for name in files:
        data, to = (ROOT / name).read_bytes(), COPY / name
        if to.is_file() and to.read_bytes() == data:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
        shutil.copymode(ROOT / name, to)


def needs_cuda(mutant):
    """Whether its tests are built with a CUDA toolkit."""
    return any(t.ctest.startswith("test_cud") for t in mutant.tests)


def settings(keys):
    """The settings of build/release that are not empty."""
    cache = (ROOT / "build/release/CMakeCache.txt").read_text()
    found = {key: re.search(rf"^{key}:\w+=(.+)$", cache, re.M) for key in keys}
    return {key: match[1] for key, match in found.items() if match}


def configure(cuda):
    """The configuration of build/release, without CUDA unless it is needed:
    kernels take long to build."""
    keys = ["ONNX_FP8_ONNX_DIR", "ONNX_FP8_PROTOBUF_DIR", "ONNX_FP8_PYTHON",
            "ONNX_FP8_NODE_CASES", "ONNX_FP8_ORT_INCLUDE", "CMAKE_CXX_COMPILER_LAUNCHER"]
    options = [f"-D{key}={value}" for key, value in
               settings(keys + list(CUDA_SETTINGS) * cuda).items()]
    done = subprocess.run(["cmake", "--preset", "release", *options], cwd=COPY,
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"mutate: configuring {COPY} failed\n{done.stderr}")


def build(tests):
    """Builds the tests. Returns the compiler's messages if that fails."""
    targets = {"onnx-fp8" if t.ctest in PYTEST else t.ctest for t in tests}
    if any(t.ctest == "test_ort_newest" for t in tests):
        targets.add("onnx_fp8_ort")
    if any(t.ctest == "test_python_package" for t in tests):
        targets.add("python_package")
    done = subprocess.run(
        ["cmake", "--build", BUILD, "--parallel", str(os.cpu_count()),
         "--target", *sorted(targets)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "" if done.returncode == 0 else done.stdout


def commands():
    """Test name → (command, environment) as ctest runs it."""
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=BUILD,
                           check=True, capture_output=True, text=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        pairs = (entry.split("=", 1) for entry in properties["ENVIRONMENT"])
        # A test that is not built yet has no command in ctest.
        command = test.get("command") or [str(BUILD / test["name"])]
        found[test["name"]] = (command, dict(pairs))
    return found


class Runner:
    """Runs the tests of the copy."""

    def __init__(self):
        self.commands = commands()
        self.seconds = {}  # of each test while nothing was broken

    def run(self, test):
        """Returns (passed, the case that failed or "", output)."""
        command, variables = self.commands[test.ctest]
        environment = os.environ | variables | {"GTEST_FAIL_FAST": "1"}
        if test.ctest in PYTEST:
            command = command + ["-x", "-k", test.only]
        elif test.only:
            environment["GTEST_FILTER"] = test.only
        # Otherwise a kill could depend on cases that only some checkouts have.
        environment.pop("ONNX_FP8_CORPUS", None)
        limit = max(LEAST_SECONDS, 10 * self.seconds.get(test, LEAST_SECONDS))
        child = subprocess.Popen(command, cwd=COPY, env=environment,
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True,
                                 errors="replace", start_new_session=True)
        try:
            output, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return False, f"{test.ctest}: hang ({limit:.0f} s)", ""
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        if child.returncode == 0:
            return "[  PASSED  ] 0 tests" not in output, "no such test", output
        for pattern in FAILED:
            case = re.search(pattern, output, re.M)
            if case:
                return False, case[1], output
        started = re.findall(STARTED, output, re.M)
        return False, f"{started[-1] if started else test.ctest}: crash", output

    def see_all_pass(self, tests):
        """The tests must pass while nothing is broken."""
        words = build(tests)
        if words:
            sys.exit(f"mutate: the unbroken copy does not build\n{words}")
        for test in tests:
            begin = time.monotonic()
            passed, case, output = self.run(test)
            if not passed:
                sys.exit(f"mutate: {test} fails while nothing is broken: "
                         f"{case}\n{output[-3000:]}")
            self.seconds[test] = time.monotonic() - begin


def broken(mutant, root=COPY):
    """The mutant's file with the change, or None if the list is out of date."""
    path = root / mutant.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(mutant.old) != 1 or mutant.old == mutant.new:
        return None
    return text.replace(mutant.old, mutant.new)


def judge(mutant, runner):
    """Returns (verdict, the test or the reason)."""
    text = broken(mutant)
    if text is None:
        return "stale", f"its text is not exactly once in {mutant.file}"
    path = COPY / mutant.file
    whole = path.read_bytes()
    path.write_text(text, encoding="utf-8")
    try:
        words = build(mutant.tests)
        if words:
            error = re.search(r"error: .*", words)
            return "no mutant", error[0] if error else "does not build"
        for test in mutant.tests:
            passed, case, _ = runner.run(test)
            if not passed:
                return "killed", case
        return "survived", ", ".join(map(str, mutant.tests))
    finally:
        path.write_bytes(whole)


def chosen(patterns):
    """The mutants whose names match, by file: neighbors build fast."""
    found = [m for m in load() if not patterns or
             any(fnmatch.fnmatch(m.name, p) for p in patterns)]
    if not found:
        sys.exit("mutate: no mutant has such a name; --list shows all")
    return sorted(found, key=lambda m: m.file)


def check(selected):
    """Prints the mutants that are out of date. Returns the exit code."""
    stale = [m for m in selected if broken(m, ROOT) is None]
    for m in stale:
        print(f"mutate: stale: {m.name}: its text is not exactly once in "
              f"{m.file}")
    return 1 if stale else 0


def left(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def run_all(selected, runner):
    """Prints a line for each mutant while it runs. Returns the results."""
    results = []
    begin = time.monotonic()
    width = len(str(len(selected)))
    for number, mutant in enumerate(selected, 1):
        start = time.monotonic()
        verdict, why = judge(mutant, runner)
        now = time.monotonic()
        rest = (now - begin) / number * (len(selected) - number)
        print(f"[{number:{width}}/{len(selected)}] "
              f"{'killed by' if verdict == 'killed' else verdict.upper() + ':'} "
              f"{why}  {now - start:.1f} s  {mutant.name}  "
              f"(ETA {left(rest)})", flush=True)
        results.append({"name": mutant.name, "file": mutant.file,
                        "verdict": verdict, "why": why,
                        "seconds": round(now - start, 1)})
    return results


def main():
    parser = argparse.ArgumentParser(prog="./dev mutate-old", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="globs: only these mutants")
    parser.add_argument("--list", action="store_true",
                        help="print the mutants and what should notice them")
    parser.add_argument("--check", action="store_true",
                        help="only see that no mutant is out of date")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    parser.add_argument("--keep", action="store_true",
                        help="keep the copy: the next run builds less")
    args = parser.parse_args()
    selected = chosen(args.names)
    if args.list:
        for m in selected:
            print(f"{m.name}  [{m.file}]  {', '.join(map(str, m.tests))}")
        return 0
    if args.check:
        return check(selected)
    if len(settings(CUDA_SETTINGS)) < len(CUDA_SETTINGS):
        left_out = [m.name for m in selected if needs_cuda(m)]
        selected = [m for m in selected if not needs_cuda(m)]
        if left_out:
            print(f"left out: {len(left_out)} mutants of the provider cuda, "
                  "for build/release has no CUDA toolkit or no cuDNN")
    COPY.mkdir(parents=True, exist_ok=True)
    copy_tree(sources())
    configure(any(map(needs_cuda, selected)))
    tests = list(dict.fromkeys(t for m in selected for t in m.tests))
    print(f"{len(selected)} mutants; building the unbroken copy and running "
          f"its {len(tests)} groups of tests", flush=True)
    runner = Runner()
    begin = time.monotonic()
    runner.see_all_pass(tests)
    print(f"all pass after {left(time.monotonic() - begin)}", flush=True)
    results = run_all(selected, runner)
    if not args.keep:
        shutil.rmtree(COPY)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    count = {"killed": 0, "survived": 0, "stale": 0, "no mutant": 0}
    for result in results:
        count[result["verdict"]] += 1
        if result["verdict"] != "killed":
            print(f"{result['verdict']}: {result['name']} ({result['why']})")
    hangs = sum(": hang" in r["why"] for r in results)
    print(f"{len(results)} mutants in {left(time.monotonic() - begin)}: "
          f"{count['killed']} killed ({hangs} by the time limit), "
          f"{count['survived']} survived, {count['stale']} stale, "
          f"{count['no mutant']} did not build")
    return 0 if count["killed"] == len(results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
