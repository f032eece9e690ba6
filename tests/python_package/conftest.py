# SPDX-License-Identifier: Apache-2.0
import pathlib
import signal
import sys

# The program under test, to compare with, and small data.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import program  # noqa: E402

# A shell's background jobs ignore SIGINT. Some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter):
    for line in program.left_out_lines():
        terminalreporter.write_line(line)
