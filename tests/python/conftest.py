# SPDX-License-Identifier: Apache-2.0
import program


def pytest_terminal_summary(terminalreporter):
    """Lists the tests left out here; `./dev test` repeats these lines at its end."""
    for line in program.left_out_lines():
        terminalreporter.write_line(line)
