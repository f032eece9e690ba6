# SPDX-License-Identifier: Apache-2.0
import atexit
import functools
import sys
import traceback

from . import _core


@functools.cache
def watch_ranks():
    """Other ranks of a job wait for a rank whose script ends with an exception: from now on they end, too."""
    before = sys.excepthook

    def end(kind, error, trace):
        if before is sys.__excepthook__ and sys.stderr:
            # Python writes a traceback piece by piece, and the pieces of several ranks would mix.
            sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))
            sys.stderr.flush()
        else:
            before(kind, error, trace)
        _core.abort_ranks(f"{kind.__name__}: {error}")

    sys.excepthook = end
    atexit.register(_core.close_ranks)
