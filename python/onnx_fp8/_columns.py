# SPDX-License-Identifier: Apache-2.0
"""From the columns of other libraries' data to the inputs of a model."""
import numpy as np

from ._errors import Error, OptionError
from ._notes import note

IGNORED = -100  # a label that no loss counts, here as in PyTorch
LABELS = {"labels": IGNORED}
_LABELS = ("label", "label_ids")  # as transformers' default_data_collator takes them
_DATA = ("input_ids", "pixel_values", "input_values", "input_features", "inputs_embeds")


def _is_sequence(row):
    return getattr(row, "ndim", 1 if isinstance(row, (list, tuple)) else 0) > 0


def _lengths(rows):
    """How long the sequence of each row is; None if a row is a number."""
    if isinstance(rows, (list, tuple)):
        return [len(row) for row in rows] if all(map(_is_sequence, rows)) else None
    return [rows.shape[1]] * rows.shape[0] if getattr(rows, "ndim", 0) > 1 else None


def _is_ragged(rows):
    return isinstance(rows, (list, tuple)) and all(map(_is_sequence, rows)) and len(set(map(len, rows))) > 1


def _array(row):
    array = np.asarray(row)
    return array.astype(np.int64) if isinstance(row, list) and not row else array  # numpy takes it as floats


def _arrays(name, rows, where):
    try:
        return [_array(row) for row in rows]
    except (ValueError, TypeError, RuntimeError):  # lists of other lengths in a row, a tensor of a device
        raise Error(f"[{where}] expected arrays of numbers as rows of {name}, got rows that are none") from None


def _are_integers(rows):
    return all(row.ndim == 1 and row.dtype.kind in "biu" for row in rows)


def _integers(name, rows, where):
    """The rows as integers; None if they are floats or have more axes."""
    rows = _arrays(name, rows, where)
    if _are_integers(rows):
        return rows
    if _is_ragged(rows):
        raise Error(f"[{where}] expected integers in {name}, whose rows have other lengths, got "
                    f"{', '.join(sorted({str(row.dtype) for row in rows}))} of {max(row.ndim for row in rows)} axes")
    return None


class Columns:
    """Names and pads what a batch holds. `columns`: the input for each column that has another name, None for a column
    to leave out. `pad_to`: lengths of sequences, each one plan of the step: a batch gets the shortest one that fits. Labels
    are padded with the one that does not count, attention_mask with 0, other inputs with `pad_id`. `shift_labels`: position
    i has the label of the next token, as models of transformers shift them. `segments`: the input that tells the documents
    of a row apart; none has a label of the next one, and padding is in none.

    The attribute `labels`: the inputs that get labels, with the label that does not count, or None if the loss counts all.
    """

    def __init__(self, where, columns=None, pad_to=None, pad_id=0, shift_labels=False, segments=None):
        self._where, self._given, self.labels = where, dict(columns or {}), LABELS
        self._segments = segments
        self._buckets = _buckets(pad_to)
        if not _is_integer(pad_id):
            raise OptionError(f"`pad_id`: expected an integer, got {pad_id!r}")
        self._pad_id, self._shifts = pad_id, shift_labels
        self._told = set()

    def tell(self, text):
        if text not in self._told:
            note(f"[{self._where}] {text}")
        self._told.add(text)

    def chosen(self, columns, names):
        """{input: column} for the inputs that have one."""
        unknown = [str(column) for column in self._given if column not in columns]
        if unknown:
            raise OptionError(f"`columns`: `{self._where}` has no column {', '.join(unknown)}, only "
                              f"{', '.join(map(str, columns))}")
        others = [name for name in self._given.values() if name is not None and name not in names]
        if others:
            raise OptionError(f"`columns`: the model has no input {', '.join(others)}, only {', '.join(names)}")
        chosen = {name: column for column, name in self._given.items() if name is not None}
        free = [column for column in columns if column not in self._given]
        for column in free:
            if column in names:
                if column in chosen:
                    raise OptionError(f"`columns`: {column} and {chosen[column]} are both for the input {column}")
                chosen[column] = column
        left = [column for column in free if column not in names]
        label = next(iter(self.labels), None)
        for column in left:
            if column in _LABELS and label in names and label not in chosen:
                chosen[label] = column
        missing = [name for name in names if name not in chosen and name not in self.labels and name != "attention_mask"]
        data = [column for column in left if column in _DATA]
        if len(missing) == 1 and len(data) == 1:
            chosen[missing[0]] = data[0]
        renamed = [f"{column} as {name}" for name, column in chosen.items() if name != column]
        if renamed:
            self.tell(f"the batches give {', '.join(renamed)}")
        unread = [str(column) for column in left if column not in chosen.values()]
        if unread:
            self.tell(f"{', '.join(unread)} of the batches is no input of the model")
        return chosen

    def finished(self, batch, names):
        """The batch with labels that are shifted, and sequences that are padded. A column may be a list of rows of other
        lengths."""
        if self._shifts:
            self._shift(batch, names)
        if self._buckets:
            self._pad(batch, names)
        for name, rows in batch.items():
            if _is_ragged(rows):
                short, long = min(map(len, rows)), max(map(len, rows))
                raise Error(f"[{self._where}] expected sequences of one length in {name}, got lengths from {short} to {long}: "
                            "`pad_to` pads them")
        return batch

    def _shift(self, batch, names):
        label, ignored = next(iter(self.labels.items()), (None, None))
        if ignored is None:
            raise Error(f"[{self._where}] expected a loss of classes for `shift_labels`: the last token has no next one")
        source = label if label in batch else next((n for n in names if n not in self.labels and n in batch), None)
        if source is None:
            return
        self.tell(f"{label} come from {source}, shifted by one: position i has the label of the next token")
        rows = batch[source]
        mask, segments = batch.get("attention_mask"), batch.get(self._segments)
        shifted = []
        arrays = _arrays(source, rows, self._where)
        if not _are_integers(arrays):
            got = next(row for row in arrays if not _are_integers([row]))
            raise Error(f"[{self._where}] expected one integer for each token of {source}, got rows of {got.dtype} and shape "
                        f"{got.shape}")
        for i, array in enumerate(arrays):
            row = array.astype(np.int64)
            if mask is not None:
                seen = np.asarray(mask[i])
                if seen.shape != row.shape:
                    raise Error(f"[{self._where}] expected attention_mask as long as {source}, got {seen.shape} and {row.shape}")
                row = np.where(seen != 0, row, ignored)
            row = np.append(row[1:], ignored)[:len(row)]
            if segments is not None:
                own = np.asarray(segments[i])
                if own.shape != row.shape:
                    raise Error(f"[{self._where}] expected {self._segments} as long as {source}, got {own.shape} and {row.shape}")
                row[:-1][own[1:] != own[:-1]] = ignored
            shifted.append(row)
        batch[label] = shifted if isinstance(rows, (list, tuple)) else np.stack(shifted)

    def _pad(self, batch, names):
        rows = {name: _integers(name, batch[name], self._where) for name in batch if _lengths(batch[name])}
        rows = {name: integers for name, integers in rows.items() if integers is not None}
        tokens = next((name for name in names if name in rows and name not in self.labels), None)
        if tokens is None:
            raise Error(f"[{self._where}] expected an input of sequences of integers for `pad_to`, got none")
        lengths = _lengths(rows[tokens])
        bucket = next((bucket for bucket in self._buckets if bucket >= max(lengths)), None)
        if bucket is None:
            row = lengths.index(max(lengths))
            raise Error(f"[{self._where}] expected sequences of at most {self._buckets[-1]}, the largest of `pad_to`, got "
                        f"{max(lengths)} in row {row} of {tokens} in a batch")
        if "attention_mask" in names and "attention_mask" not in batch:
            self.tell("attention_mask is made: 1 for each token, 0 for the padding")
            rows["attention_mask"] = [np.ones(length, np.int64) for length in lengths]
        for name, integers in rows.items():
            if _lengths(integers) == lengths:
                batch[name] = self._padded(name, integers, bucket, "attention_mask" in names)
            elif _is_ragged(integers):
                raise Error(f"[{self._where}] expected rows of {name} as long as those of {tokens}, got lengths "
                            f"{_lengths(integers)} and {lengths}")

    def _padded(self, name, rows, bucket, is_hidden):
        if name == self._segments:
            return np.array([[*row.tolist(), *[_segment_of_padding(row, is_hidden)] * (bucket - len(row))] for row in rows],
                            np.int64)
        fill = self.labels.get(name, 0 if name == "attention_mask" else self._pad_id)
        if fill is None:
            raise Error(f"[{self._where}] can't pad {name}: the loss counts each number of it")
        dtype = np.result_type(*{row.dtype for row in rows})
        padded = np.full((len(rows), bucket), fill, np.int64 if fill < 0 else np.promote_types(dtype, np.min_scalar_type(fill)))
        for to, row in zip(padded, rows):
            to[:len(row)] = row
        return padded


def _is_integer(value):
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _segment_of_padding(segments, is_hidden):
    """A number of its own. Where attention_mask hides padding, the last token's: padding that sees nothing has no
    probabilities, not even 0."""
    if not len(segments):
        return 0
    return int(segments[-1]) if is_hidden else int(segments.max()) + 1


def _buckets(pad_to):
    if pad_to is None:
        return []
    given = list(pad_to) if isinstance(pad_to, (list, tuple, range)) else [pad_to]
    if not given or any(not _is_integer(b) or b < 1 for b in given):
        raise OptionError(f"`pad_to`: expected lengths of at least 1, got {pad_to!r}")
    return sorted(int(b) for b in given)
