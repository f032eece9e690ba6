# SPDX-License-Identifier: Apache-2.0
"""Documents of tokens as rows of one length."""
import bisect
import operator

import numpy as np

from ._errors import Error

_IGNORED = -100


def _pieces(documents, length):
    """Pairs of up to `length` tokens and their labels, the tokens after them. Error: a document that is no row of
    integers."""
    pieces = []
    for number, document in enumerate(documents):
        tokens = np.asarray(document)
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            raise Error(f"[documents[{number}]] expected integers along one axis, got {tokens.dtype}{list(tokens.shape)}")
        tokens = tokens.astype(np.int64)
        labels = np.append(tokens[1:], _IGNORED)
        pieces += [(tokens[i:i + length], labels[i:i + length]) for i in range(0, len(tokens), length)]
    return pieces


def _rows(lengths, length):
    """Numbers of pieces for each row: the longest piece first, each into the fullest row that has room for it."""
    rows, room = [], []  # room: (free tokens, row), sorted
    for piece in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        at = bisect.bisect_left(room, (lengths[piece], 0))
        free, row = room.pop(at) if at < len(room) else (length, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(piece)
        bisect.insort(room, (free - lengths[piece], row))
    return rows


def pack(documents, length, pad=0):
    """Packs documents into rows of `length` tokens, for training with `segment_ids="segment_ids"`.

    `documents`: rows of token ids of any length. A longer one than `length` is cut. Returns a dict of int64 arrays
    (rows, length): `input_ids`; `labels`, the next token of the same document, or -100; `segment_ids`, a number from 0
    on for each document of a row; `position_ids`, which begin at 0 in each. A row is filled up with `pad`, which has a
    segment of its own and no label. The longest documents come first, each in the fullest row that has room for it.
    """
    try:
        length = operator.index(length)
    except TypeError:
        length = 0
    if length < 1:
        raise Error("`length`: expected a whole number of at least 1")
    pieces = _pieces(documents, length)
    if not pieces:
        raise Error("[documents] expected at least one token, got none")
    rows = _rows([len(tokens) for tokens, _ in pieces], length)
    shape = len(rows), length
    packed = {"input_ids": np.full(shape, pad, np.int64), "labels": np.full(shape, _IGNORED, np.int64),
              "segment_ids": np.zeros(shape, np.int64), "position_ids": np.zeros(shape, np.int64)}
    for row, numbers in enumerate(rows):
        begin = 0
        for segment, number in enumerate(numbers):
            tokens, labels = pieces[number]
            part = row, slice(begin, begin + len(tokens))
            packed["input_ids"][part], packed["labels"][part] = tokens, labels
            packed["segment_ids"][part], packed["position_ids"][part] = segment, np.arange(len(tokens))
            begin += len(tokens)
        packed["segment_ids"][row, begin:] = len(numbers)
        packed["position_ids"][row, begin:] = np.arange(length - begin)
    return packed
