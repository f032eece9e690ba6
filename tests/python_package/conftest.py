# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

# The program under test, to compare with, and small data.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import program  # noqa: E402


def pytest_terminal_summary(terminalreporter):
    for line in program.left_out_lines():
        terminalreporter.write_line(line)
