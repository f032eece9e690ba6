# SPDX-License-Identifier: Apache-2.0
"""Samples of Parquet and Arrow files, and of objects such as datasets.Dataset, for a run."""
import bisect
import itertools
import os

import numpy as np

from ._arrays import to_core
from ._columns import LABELS
from ._errors import Error, OptionError

_SUFFIXES = (".parquet", ".arrow", ".feather")


def _paths(value):
    values = value if isinstance(value, (list, tuple)) else [value]
    return [os.fspath(v) for v in values if isinstance(v, (str, os.PathLike))]


def are_tables(value):
    """Whether files are Parquet or Arrow. Error: some are, others are not."""
    paths = _paths(value)
    tables = [path for path in paths if path.endswith(_SUFFIXES)]
    if tables and len(tables) < len(paths):
        raise OptionError(f"expected tables ({', '.join(_SUFFIXES)}) or other files, got both: {', '.join(paths)}")
    return bool(tables)


def is_dataset(value):
    """Whether an object has rows by index, as a datasets.Dataset."""
    return hasattr(value, "column_names") and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _pyarrow(path):
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise Error(f"[{path}] needs the package pyarrow, which can't be imported ({error}): pip install pyarrow") from None
    return pyarrow


class Rows:
    """`rows(indices, names, labels)` are these samples for the inputs of these names; `samples` is their number. `labels`:
    as the attribute of Columns."""

    def __init__(self, table, columns):
        self._table, self._columns = table, columns
        self.samples = len(table)

    def rows(self, indices, names, labels=LABELS):
        self._columns.labels = labels
        chosen = self._columns.chosen(self._table.column_names, names)
        taken = self._table.take(indices, list(dict.fromkeys(chosen.values())))
        batch = {name: taken[column] for name, column in chosen.items()}
        return to_core(self._columns.finished(batch, names), self._table.name)

    def example(self, count, names, labels):
        """The first rows."""
        return self.rows(range(min(count, self.samples)), names, labels)

    def close(self):
        pass


class Dataset:
    """A datasets.Dataset or an object with its `column_names`, its length, and rows by a list of indices."""

    def __init__(self, name, dataset):
        self.name, self._dataset = name, dataset
        self.column_names = list(dataset.column_names)

    def __len__(self):
        return len(self._dataset)

    def take(self, indices, columns):
        rows = self._dataset[list(indices)]
        return {column: rows[column] for column in columns}


class Files:
    """The rows of Parquet and Arrow files, one file after the other. Arrow files are mapped; columns of Parquet files are
    decoded when they are first read, and stay."""

    def __init__(self, paths):
        self.name = ", ".join(paths)
        self._files = [_open(path) for path in paths]
        first = self._files[0]
        self.column_names = first.column_names
        for file in self._files:
            if sorted(file.column_names) != sorted(first.column_names):
                raise Error(f"[{file.path}] expected the columns of {first.path}, {', '.join(first.column_names)}, got "
                            f"{', '.join(file.column_names)}")
        self._begins = list(itertools.accumulate((file.length for file in self._files), initial=0))

    def __len__(self):
        return self._begins[-1]

    def take(self, indices, columns):
        places = []
        for index in indices:
            file = bisect.bisect_right(self._begins, index) - 1
            places.append((self._files[file], index - self._begins[file]))
        return {column: _stacked([file.row(column, row) for file, row in places]) for column in columns}


def _stacked(rows):
    """One array, or the list of rows if they have other lengths."""
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else rows


def _open(path):
    if not os.path.exists(path):
        raise Error(f"[{path}] can't be opened: No such file or directory")
    pyarrow = _pyarrow(path)
    try:
        return _ParquetFile(path, pyarrow) if path.endswith(".parquet") else _ArrowFile(path, pyarrow)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise Error(f"[{path}] can't be read by pyarrow: {error}") from None


class _File:
    """Rows of one file. `_column(name)` is a ChunkedArray."""

    def __init__(self, path, pyarrow):
        self.path, self._pyarrow = path, pyarrow
        self._read = {}  # by column: the chunks, and where each begins

    def row(self, column, row):
        """A number, or an array of a sequence."""
        where = f"[{self.path}] column {column}, row {row}:"
        if column not in self._read:
            chunks = self._chunks(column)
            self._read[column] = chunks, list(itertools.accumulate(map(len, chunks), initial=0))
        chunks, begins = self._read[column]
        chunk = bisect.bisect_right(begins, row) - 1
        try:
            return self._numbers(chunks[chunk].slice(row - begins[chunk], 1), where)[0]
        except (self._pyarrow.ArrowException, OSError) as error:
            raise Error(f"{where} can't be read by pyarrow: {error}") from None

    def _chunks(self, column):
        if self.column_names.count(column) > 1:
            raise Error(f"[{self.path}] expected one column {column}, got {self.column_names.count(column)}")
        try:
            read = self._column(column)
            read.validate(full=True)  # offsets of lists may lead anywhere
            return [chunk for chunk in read.chunks if len(chunk)]
        except (self._pyarrow.ArrowException, OSError, KeyError, MemoryError) as error:
            raise Error(f"[{self.path}] column {column} can't be read by pyarrow: {error}") from None

    def _numbers(self, array, where):
        types = self._pyarrow.types
        if array.null_count:
            raise Error(f"{where} expected a value, got null")
        if types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
            return self._lists(array, where)
        if types.is_dictionary(array.type):
            return self._numbers(array.dictionary_decode(), where)
        if not (types.is_integer(array.type) or types.is_floating(array.type) or types.is_boolean(array.type)):
            raise Error(f"{where} expected numbers or lists of numbers, got {array.type}")
        return array.to_numpy(zero_copy_only=False)

    def _lists(self, array, where):
        lengths = {len(value) for value in array}
        if len(lengths) > 1:
            raise Error(f"{where} expected lists of one length inside a list, got lengths from {min(lengths)} to {max(lengths)}")
        inner = self._numbers(array.flatten(), where)
        return inner.reshape(len(array), *lengths, *inner.shape[1:])


class _ParquetFile(_File):
    def __init__(self, path, pyarrow):
        super().__init__(path, pyarrow)
        self._file = pyarrow.parquet.ParquetFile(path, memory_map=True)
        self.column_names = self._file.schema_arrow.names
        self.length = self._file.metadata.num_rows

    def _column(self, name):
        return self._file.read(columns=[name]).column(name)


class _ArrowFile(_File):
    def __init__(self, path, pyarrow):
        super().__init__(path, pyarrow)
        mapped = pyarrow.memory_map(path)
        try:
            self._table = pyarrow.ipc.open_file(mapped).read_all()
        except pyarrow.ArrowInvalid:  # the format of streams, which datasets writes
            mapped.seek(0)
            self._table = pyarrow.ipc.open_stream(mapped).read_all()
        self.column_names = self._table.column_names
        self.length = self._table.num_rows

    def _column(self, name):
        return self._table.column(name)
