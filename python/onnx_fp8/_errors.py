# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this package. Their texts match the command line's, with options named as keywords."""


class Error(RuntimeError):
    """A model, a file, data or the machine does not do what was asked."""


class OptionError(Error, ValueError):
    """An option that does not exist, or whose value does not fit."""


class MissingFileError(Error, FileNotFoundError):
    """A file or folder that does not exist."""
