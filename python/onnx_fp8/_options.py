# SPDX-License-Identifier: Apache-2.0
"""Models as files, and errors about files that do not exist."""
import contextlib
import os
import pathlib
import tempfile
import textwrap

from . import _core
from ._errors import Error, MissingFileError, OptionError


def documented(command):
    """Adds the options of the command to a docstring."""
    def add(function):
        function.__doc__ = (f"{function.__doc__.rstrip()}\n\n    Options:\n\n"
                            + textwrap.indent(_core.describe(command), "    "))
        return function
    return add


def _described(model):
    name = type(model).__name__
    if hasattr(model, "state_dict") and hasattr(model, "named_parameters"):
        return f"the PyTorch module {name}; onnx_fp8.torch.export writes its .onnx file"
    return name


class ModelFile:
    """A model by its path. Bytes, and a ModelProto of the package onnx, become a file that lives as long as this.

    `options`: the option of the model, empty if there is none.
    """

    def __init__(self, model):
        if model is None:
            self.options = {}
            return
        if hasattr(model, "SerializeToString"):
            model = model.SerializeToString()
        if isinstance(model, (bytes, bytearray, memoryview)):
            self._folder = tempfile.TemporaryDirectory(prefix="onnx_fp8.")
            self.path = os.path.join(self._folder.name, "model.onnx")
            pathlib.Path(self.path).write_bytes(model)
        elif isinstance(model, (str, os.PathLike)):
            self.path = os.path.abspath(os.fspath(model))
        else:
            raise OptionError(f"`model`: expected a path, bytes or a ModelProto, got {_described(model)}")
        self.options = {"MODEL": self.path}


@contextlib.contextmanager
def naming_missing_files(*values):
    """Errors about one of these paths are MissingFileErrors if there is no such file."""
    try:
        yield
    except Error as error:
        paths = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])
                 if isinstance(v, (str, os.PathLike))]
        missing = [p for p in paths if os.fspath(p) in str(error) and not os.path.exists(p)]
        if not missing or isinstance(error, ValueError):
            raise
        raise MissingFileError(str(error)) from None
