# SPDX-License-Identifier: Apache-2.0
"""Keywords as flags of the command line, which checks them; models as files."""
import contextlib
import json
import os
import pathlib
import tempfile

from ._errors import Error, MissingFileError, OptionError


# False means "not given", so False for these would be lost.
_SWITCHED_OFF = {"shuffle": "no_shuffle=True", "overlap": "no_overlap=True", "tie": "no_tie=True",
                 "tie_copies": "no_tie=True"}


def _word(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return repr(value) if isinstance(value, float) else str(value)


def _words(name, value):
    """The words of one option: a list has several, a dict has KEY=VALUE."""
    if isinstance(value, dict):
        if name == "recipe":
            return [json.dumps(value)]
        return [f"{key}={_word(item)}" for key, item in value.items()]
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_word(item) for item in value] or [""]
    return [_word(value)]


def flags(options):
    """{"filter_fqns": ["head"], "no_tie": True} → ["--filter-fqns=head", "--no-tie"]. None and False: not given."""
    arguments = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is False and name in _SWITCHED_OFF:
            raise OptionError(f"there is no option `{name}`; did you mean `{_SWITCHED_OFF[name]}`?")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
            continue
        for word in _words(name, value):
            arguments += [f"{flag}={word}"] if word else [flag, ""]
    return arguments


def _described(model):
    name = type(model).__name__
    if hasattr(model, "state_dict") and hasattr(model, "named_parameters"):
        return f"the PyTorch module {name}; onnx_fp8.torch.export writes its .onnx file"
    return name


class ModelFile:
    """A model by its path. Bytes, and a ModelProto of the package onnx, become a file that lives as long as this.

    `words`: the path as a positional argument; empty if there is no model.
    """

    def __init__(self, model):
        if model is None:
            self.words = []
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
        self.words = [self.path]


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
