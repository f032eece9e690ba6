# SPDX-License-Identifier: Apache-2.0
"""The program `onnx-fp8`."""
import signal
import sys

from . import _core


def main():
    # The program ends by itself when a signal comes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_program("onnx-fp8", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
