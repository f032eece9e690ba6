# SPDX-License-Identifier: Apache-2.0
"""The suites of the tests: which mutants each one reaches, and which it kills.

A suite is one of GoogleTest's, one function of pytest, or a whole test of ctest.
It runs in a process of its own, with a folder for temporary files of its own."""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

# A mutant may hang: it gets ten times the suite's time, and at least this.
LEAST_SECONDS = 10
MOST_SECONDS = 1200  # of a suite while nothing is broken
# How a test names the first case that failed, or in which it died.
FAILED = (r"^\[  FAILED  \] (\S+?),? ", r"^FAILED (\S+?)(?:\[| |$)")
STARTED = r"^\[ RUN      \] (\S+)"
WORKERS = os.cpu_count() or 1


class Suite(NamedTuple):
    test: str  # of ctest
    name: str
    command: tuple
    environment: tuple  # pairs

    def __str__(self):
        return f"{self.test} {self.name}".strip()


class Reached(NamedTuple):
    """What a suite did while nothing was broken."""
    passed: bool
    seconds: float
    numbers: list  # of the mutants that it reached


class Outcome(NamedTuple):
    verdict: str  # passed, killed or timed out
    case: str


def commands(workspace):
    """Name of a test → (command, environment), as ctest runs it."""
    shown = subprocess.run(
        ["ctest", "--test-dir", workspace.build, "--show-only=json-v1"],
        check=True, capture_output=True, text=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        variables = next((p["value"] for p in test.get("properties", [])
                          if p["name"] == "ENVIRONMENT"), [])
        # A test that is not built yet has no command.
        command = test.get("command") or [str(workspace.build / test["name"])]
        found[test["name"]] = (command, tuple(
            tuple(v.split("=", 1)) for v in variables))
    return found


def targets(tests, known):
    """What to build for the tests."""
    found = set()
    for test in tests:
        pytest = "pytest" in known[test][0]
        found.add("onnx-fp8" if pytest or test == "test_python_package"
                  else test)
        if test == "test_python_package":
            found.add("python_package")
        if test.startswith("test_ort_"):
            found.add("onnx_fp8_ort")
    return sorted(found)


def suites_of(test, known, folder):
    """The suites of a test that is built."""
    command, environment = known[test]
    if "pytest" in command:
        return list(_pytest_suites(test, command, environment, folder))
    if test == "test_python_package":
        return [Suite(test, "", tuple(command), environment)]
    program = [w for w in command if not w.startswith("--gtest_filter")]
    shown = subprocess.run([*program, "--gtest_list_tests"], cwd=folder,
                           capture_output=True, text=True)
    names = re.findall(r"^(\S+)\.(?:  #.*)?$", shown.stdout, re.M)
    if shown.returncode != 0 or not names:
        sys.exit(f"mutate: {test} lists no suites\n{shown.stderr}")
    return [Suite(test, name, (*program, f"--gtest_filter={name}.*"),
                  environment) for name in names]


def _pytest_suites(test, command, environment, folder):
    """One suite for each function of each file."""
    words, files, left_out = [], [], set()
    given = iter(command)
    for word in given:
        if word == "--ignore":
            left_out.add(next(given))
        elif (Path(folder) / word).is_dir() and word.startswith("tests/"):
            files += sorted(p.relative_to(folder).as_posix() for p in
                            Path(folder, word).rglob("test_*.py"))
        elif word.startswith("tests/"):
            files.append(word)
        else:
            words.append(word)
    for file in files:
        text = Path(folder, file).read_text(encoding="utf-8")
        for name in re.findall(r"^def (test_\w+)\(", text, re.M):
            if file not in left_out:
                place = f"{file}::{name}"
                yield Suite(test, place, (*words, "-x", place), environment)


def _limit_memory(command):
    """A mutant with a broken size may ask for all memory of the machine. The address
    space has no limit, because the emulated GPU never uses an address twice."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return ["prlimit", f"--data={whole // WORKERS}", "--core=0", "--", *command]


def run(suite, folder, variables, seconds):
    """Runs a suite up to its first failure."""
    with tempfile.TemporaryDirectory(
            prefix="mutate", ignore_cleanup_errors=True) as scratch:
        environment = os.environ | dict(suite.environment) | variables | {
            "GTEST_FAIL_FAST": "1", "TMPDIR": scratch, "TEST_TMPDIR": scratch}
        # A kill could depend on cases that only some checkouts have.
        environment.pop("ONNX_FP8_CORPUS", None)
        child = subprocess.Popen(
            _limit_memory(suite.command), cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True)
        try:
            output, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(child)
            child.communicate()
            return Outcome("timed out", f"{suite} ({seconds:.0f} s)")
        except BaseException:
            _end(child)
            raise
    if child.returncode == 0:
        return Outcome("passed", "")
    for pattern in FAILED:
        case = re.search(pattern, output, re.M)
        if case:
            return Outcome("killed", case[1])
    started = re.findall(STARTED, output, re.M)
    return Outcome("killed", f"{started[-1] if started else suite}: crash")


def _end(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def record(suites, folder, cache, key):
    """Suite → what it does while nothing is broken. The runs are in the file
    `cache`, if its key is still the same."""
    held = json.loads(cache.read_text()) if cache.is_file() else {}
    runs = held["runs"] if held.get("key") == key else {}

    def one(suite):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "reached")
            begin = time.monotonic()
            outcome = run(suite, folder, {"ONNX_FP8_MUTANT_REACHED": str(path)},
                          MOST_SECONDS)
            lines = path.read_text().split() if path.is_file() else []
            return [outcome.verdict == "passed", time.monotonic() - begin,
                    sorted({int(n) for n in lines})]

    todo = [s for s in suites if str(s) not in runs]
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for suite, found in zip(todo, pool.map(one, todo)):
            runs[str(suite)] = found
    cache.write_text(json.dumps({"key": key, "runs": runs}))
    return {suite: Reached(*runs[str(suite)]) for suite in suites}


def judge(number, reached, folder):
    """Runs the suites that reach a mutant, short ones first. Returns the
    outcome: passed if it survives."""
    mine = sorted((s for s, r in reached.items()
                   if r.passed and number in r.numbers),
                  key=lambda s: reached[s].seconds)
    if not mine:
        return Outcome("not reached", "")
    for suite in mine:
        limit = max(LEAST_SECONDS, 10 * reached[suite].seconds)
        outcome = run(suite, folder, {"ONNX_FP8_MUTANT": str(number)}, limit)
        if outcome.verdict != "passed":
            return outcome
    return Outcome("survived", ", ".join(map(str, mine[-3:])))
