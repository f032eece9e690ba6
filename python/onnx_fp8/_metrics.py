# SPDX-License-Identifier: Apache-2.0
import numpy as np

from ._arrays import from_core
from ._errors import Error, OptionError

# The other facts of a validation.
_OWN = {"accuracy", "cause", "loss", "perplexity", "remark", "samples", "step", "tokens", "total", "weights"}


class Measures:
    """Numbers of a caller's function about the outputs of a validation."""

    def __init__(self, function):
        if function is not None and not callable(function):
            raise OptionError(f"`compute_metrics`: expected a function of outputs and labels, got {function!r}")
        self._function, self._outputs, self._labels = function, {}, []

    def watch(self, kind, event):
        """Takes the outputs and labels of a batch, or gives the numbers about all of them, as the core asks."""
        if kind == "measures":
            return self.take()
        outputs, labels = event
        return self.add(from_core(outputs), None if labels is None else from_core({"labels": labels})["labels"])

    def add(self, outputs, labels):
        """One batch. Its outputs of rank 0, such as a loss, are left out."""
        for name, array in outputs.items():
            if array.ndim:
                self._outputs.setdefault(name, []).append(array)
        if labels is not None:
            self._labels.append(labels)

    def take(self):
        """The function's numbers, as floats."""
        outputs = {name: _joined(name, parts) for name, parts in self._outputs.items()}
        labels = _joined("labels", self._labels) if self._labels else None
        self._outputs, self._labels = {}, []
        numbers = self._function(outputs, labels)
        if not hasattr(numbers, "items"):
            raise Error(f"`compute_metrics`: expected a dict of numbers, got {type(numbers).__name__}")
        return {self._name(name): _number(name, value) for name, value in numbers.items()}

    def _name(self, name):
        if not isinstance(name, str) or not name or name in _OWN:
            raise Error(f"`compute_metrics`: expected names other than {', '.join(sorted(_OWN))}, got {name!r}")
        return name


def _number(name, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Error(f"`compute_metrics`: expected a number as {name}, got {type(value).__name__}") from None


def _joined(name, parts):
    if len({part.shape[1:] for part in parts}) > 1:
        shapes = sorted({part.shape[1:] for part in parts})
        raise Error(f"`compute_metrics`: expected {name} of one shape in all batches, got {shapes[0]} and {shapes[1]} for "
                    "each sample: make the sequences of all batches as long")
    return np.concatenate(parts)
