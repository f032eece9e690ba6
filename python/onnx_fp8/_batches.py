# SPDX-License-Identifier: Apache-2.0
"""Batches of any iterable, as a DataLoader gives them, for a run."""
import os

from ._arrays import to_core
from ._errors import Error, OptionError
from ._notes import note


def is_path(value):
    return isinstance(value, (str, os.PathLike))


def are_files(value):
    return value is None or is_path(value) or (isinstance(value, (list, tuple)) and all(map(is_path, value)))


class Batches:
    """`batch(index, names)` is a batch for inputs of these names; `length` is the number of batches of a pass, 0 if it is
    not known.

    A batch is a dict by the names of inputs, or a tuple or list in their order, with the label last unless it is an input
    of the model. `keep`: the iterable is read once, and `index` chooses; else batches come as the iterable gives them,
    pass after pass.
    """

    def __init__(self, name, batches, keep):
        self._name, self._given = name, batches
        try:
            self._next = iter(batches)
        except TypeError:
            raise OptionError(f"`{name}`: expected files, a dict of arrays or an iterable of batches, got "
                              f"{type(batches).__name__}") from None
        self._kept = list(self._next) if keep else None
        if keep and not self._kept:
            raise Error(f"[{name}] expected at least one batch, got none")
        self._drawn, self._said = 0, False
        try:
            self.length = len(self._kept if keep else batches)
        except TypeError:
            self.length = 0

    def batch(self, index, names):
        given = self._kept[index % len(self._kept)] if self._kept else self._draw()
        return to_core(self._named(given, names), self._name)

    def _draw(self):
        for _ in range(2):
            for batch in self._next:
                self._drawn += 1
                return batch
            self._next = iter(self._given)  # the next pass
        raise Error(f"[{self._name}] expected more batches, got {self._drawn}: a generator gives its batches once; a list "
                    "or a DataLoader gives them again")

    def _named(self, batch, names):
        where = f"[{self._name}]"
        if isinstance(batch, (tuple, list)):
            if len(batch) != len(names):
                raise Error(f"{where} expected batches of {len(names)} arrays, {', '.join(names)}, got {len(batch)}")
            self._tell(f"{where} the arrays of a batch are taken as {', '.join(names)}, in this order")
            batch = dict(zip(names, batch))
        if not hasattr(batch, "items"):
            raise Error(f"{where} expected batches that are dicts of arrays by the names of inputs, {', '.join(names)}, "
                        f"or tuples in this order, got {type(batch).__name__}")
        unread = [str(key) for key in batch if key not in names]
        if unread:
            self._tell(f"{where} {', '.join(unread)} of the batches is no input of the model")
        return {name: batch[name] for name in names if name in batch}

    def _tell(self, text):
        if not self._said:
            note(text)
        self._said = True
