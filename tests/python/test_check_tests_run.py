# SPDX-License-Identifier: Apache-2.0
"""That every C++ test runs in one of two builds, by scripts/check_tests_run.py."""
import pathlib
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# A program that lists its three tests as GoogleTest does. With a filter that begins with "-" it has one of them, with any
# other filter another one.
PROGRAM = """#!/bin/sh
echo 'Running main() from gtest_main.cc'
case $2 in
--gtest_filter=-*) printf 'Values/Sums.\\n  Are/0  # GetParam() = 3\\n' ;;
--gtest_filter=*) printf 'Sums.\\n  Leak\\n' ;;
*) printf 'Sums.\\n  Leak\\nValues/Sums.\\n  Are/0  # GetParam() = 3\\n  Are/1  # GetParam() = 4\\n' ;;
esac
"""


def build(folder, *filters):
    folder.mkdir()
    program = folder / "test_sums"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    entries = [f'add_test(sums_{number} "{program}" {word})\n' for number, word in enumerate(filters)]
    (folder / "CTestTestfile.cmake").write_text("".join(entries) + "add_test(said cmake -E echo left out)\n")
    return folder


def check(*builds):
    done = subprocess.run([sys.executable, SCRIPTS / "check_tests_run.py", *builds], text=True,
                          capture_output=True)
    return done.returncode, done.stderr.splitlines(), done.stdout


@pytest.mark.parametrize("other", [[""], ["--gtest_filter=Sums.Leak", ""]])
def test_each_runs_somewhere(tmp_path, other):
    builds = build(tmp_path / "asan", "--gtest_filter=-Slow"), build(tmp_path / "release", *other)
    code, lost, text = check(*builds)
    assert (code, lost) == (0, []) and text.startswith("tests: 3 of C++ run in ")


def test_one_that_no_build_runs_is_named(tmp_path):
    asan = build(tmp_path / "asan", "--gtest_filter=-Slow")
    assert check(asan)[:2] == (1, ["no build runs test_sums: Sums.Leak", "no build runs test_sums: Values/Sums.Are/1"])
    code, lost, _ = check(asan, build(tmp_path / "release", "--gtest_filter=Sums.Leak"))
    assert (code, lost) == (1, ["no build runs test_sums: Values/Sums.Are/1"])
