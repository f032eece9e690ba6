# SPDX-License-Identifier: Apache-2.0
"""What the program would print beside its results is a warning here."""
import os
import sys
import warnings

_PACKAGE = os.path.dirname(__file__)


class Note(UserWarning):
    """A fact about a model, about data or about a run that its user should know."""


def note(text):
    """Warns at the line that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and os.path.dirname(frame.f_code.co_filename) == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, Note, stacklevel=level)
