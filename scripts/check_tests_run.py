#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every C++ test runs in one of several builds.

  check_tests_run.py BUILD...

A build may leave tests out that another one runs. Each program of a build lists its tests, with and without the
filters of its ctest entries: a test that no entry runs is an error.
"""
import collections
import json
import pathlib
import subprocess
import sys


def tests_of(program, filter_word=None):
    """The full names of the tests that a run with this word has."""
    words = [program, "--gtest_list_tests", *([filter_word] if filter_word else [])]
    text = subprocess.run(words, check=True, text=True, capture_output=True).stdout
    names, suite = set(), ""
    for line in text.splitlines():
        name = line.partition("#")[0].rstrip()
        if name.startswith("  "):
            names.add(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return names


def entries_of(build):
    """Programs of GoogleTest in the entries of ctest, with their filters."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, text=True,
                           capture_output=True).stdout
    for entry in json.loads(shown)["tests"]:
        words = entry.get("command", [])
        for word, after in zip(words, [*words[1:], ""]):
            if pathlib.Path(word).parent == build and pathlib.Path(word).name.startswith("test_"):
                yield word, after if after.startswith("--gtest_filter=") else None


def main():
    known, run = collections.defaultdict(set), collections.defaultdict(set)
    for build in (pathlib.Path(word).resolve() for word in sys.argv[1:]):
        for program, filter_word in entries_of(build):
            # One with other kernels has the same tests.
            name = pathlib.Path(program).name.removesuffix("_checked").removesuffix("_plain")
            known[name] |= tests_of(program)
            run[name] |= tests_of(program, filter_word)
    lost = sorted(f"{name}: {test}" for name in known for test in known[name] - run[name])
    for line in lost:
        print(f"no build runs {line}", file=sys.stderr)
    print(f"tests: {sum(map(len, known.values()))} of C++ run in {' or '.join(sys.argv[1:])}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
