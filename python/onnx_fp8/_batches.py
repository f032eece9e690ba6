# SPDX-License-Identifier: Apache-2.0
"""Batches of any iterable, as a DataLoader gives them, or of a function, for a run."""
import inspect
import itertools
import os

import numpy as np

from ._arrays import to_core
from ._columns import LABELS
from ._errors import Error, OptionError
from ._prefetch import Prefetch


def is_path(value):
    return isinstance(value, (str, os.PathLike))


def are_files(value):
    return value is None or is_path(value) or (isinstance(value, (list, tuple)) and all(map(is_path, value)))


class _Passes:
    """A generator function, called anew for each pass."""

    def __init__(self, function):
        self._function = function

    def __iter__(self):
        return self._function()


def _own(array):
    if isinstance(array, np.ndarray):
        return array.copy()
    return array.clone() if hasattr(array, "clone") else array  # PyTorch's


def _owned(batch):
    """The batch with arrays of its own: an iterable may fill the memory of one batch with the next one."""
    if hasattr(batch, "items"):
        return {name: _own(array) for name, array in batch.items()}
    return [_own(array) for array in batch] if isinstance(batch, (tuple, list)) else batch


class Batches:
    """`batch(index, names, labels)` is a batch for inputs of these names; `length` is the number of batches of a pass, 0 if
    it is not known. `labels`: as the attribute of Columns.

    A batch is a dict by the names of inputs or of what `columns` takes for them, or a tuple or list in their order, with
    the label last unless it is an input of the model. `keep`: the iterable is read once, and `index` chooses; else batches
    come as the iterable gives them, pass after pass. A function is called with `index`. Up to `ahead` batches are drawn
    by a thread before they are asked for.
    """

    def __init__(self, name, batches, keep, columns, ahead):
        self._name, self._columns, self._ahead = name, columns, ahead
        if inspect.isgeneratorfunction(batches):
            batches = _Passes(batches)
        self._function = batches if callable(batches) and not hasattr(batches, "__iter__") else None
        self._given, self._kept, self._next, self._index = batches, None, None, None
        self._drawn = self.length = 0
        if self._function:
            if keep:
                raise OptionError(f"`{name}`: expected an iterable with an end, got a function")
            return
        try:
            given = self._pass()
        except TypeError:
            raise OptionError(f"`{name}`: expected files, a dict of arrays or an iterable of batches, got "
                              f"{type(batches).__name__}") from None
        if keep:
            self._kept = list(given)
            if not self._kept:
                raise Error(f"[{name}] expected at least one batch, got none")
        else:
            self._first = given
        try:
            self.length = len(self._kept if keep else batches)
        except TypeError:
            pass

    def batch(self, index, names, labels=LABELS):
        self._columns.labels = labels
        if self._kept:
            given = self._kept[index % len(self._kept)]
        else:
            given = self._call(index) if self._function else self._draw()
        return to_core(self._named(given, names), self._name)

    def example(self, count, names, labels):
        """The first batch, which comes again. Batches have their own size, whatever `count` is."""
        self._columns.labels = labels
        if self._function:
            return to_core(self._named(self._function(0), names), self._name)
        for batch in self._first:
            self._first = itertools.chain([batch], self._first)
            return to_core(self._named(batch, names), self._name)
        raise Error(f"[{self._name}] expected at least one batch, got none")

    def close(self):
        if isinstance(self._next, Prefetch):
            self._next.close()
        self._next = None

    def _pass(self):
        given = iter(self._given)
        return given if isinstance(self._given, (list, tuple)) else map(_owned, given)

    def _begin(self, batches):
        self.close()
        self._next = Prefetch(batches, self._ahead, self._name) if self._ahead else batches

    def _call(self, index):
        if index != self._index:
            self._begin(map(_owned, map(self._function, itertools.count(index))))
        self._index = index + 1
        for batch in self._next:
            return batch
        raise Error(f"[{self._name}] expected a batch of index {index}, got none: the function raised StopIteration")

    def _draw(self):
        if self._next is None:
            self._begin(self._first)
        for _ in range(2):
            for batch in self._next:
                self._drawn += 1
                return batch
            self._begin(self._pass())
        raise Error(f"[{self._name}] expected more batches, got {self._drawn}: a generator gives its batches once; a list, "
                    "a generator function or a DataLoader gives them again")

    def _named(self, batch, names):
        where = f"[{self._name}]"
        if isinstance(batch, (tuple, list)):
            if len(batch) != len(names):
                raise Error(f"{where} expected batches of {len(names)} arrays, {', '.join(names)}, got {len(batch)}")
            self._columns.tell(f"the arrays of a batch are taken as {', '.join(names)}, in this order")
            batch = dict(zip(names, batch))
        if not hasattr(batch, "items"):
            raise Error(f"{where} expected batches that are dicts of arrays by the names of inputs, {', '.join(names)}, "
                        f"or tuples in this order, got {type(batch).__name__}")
        chosen = self._columns.chosen(list(batch), names)
        return self._columns.finished({name: batch[column] for name, column in chosen.items()}, names)
