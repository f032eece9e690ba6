# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files and datasets as the data of a run: rows, names of columns, padding."""
import re
import sys
import warnings

import digits
import numpy as np
import program
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import onnx_fp8
from onnx_fp8._columns import Columns
from onnx_fp8._tables import Dataset, Files, Rows

LENGTHS = (3, 5, 2, 4, 1, 6)
TOKENS = [[10 * i + j for j in range(n)] for i, n in enumerate(LENGTHS)]
RUN = {"loss": "cross_entropy", "optimizer": "sgd", "lr": 1e-2, "progress": False}


def table(**columns):
    return pa.table({"input_ids": TOKENS, "labels": TOKENS} | columns)


def write(data, path, chunk=2):
    """By the suffix; `.arrow` as a file, `stream.arrow` as a stream."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(data, path, row_group_size=chunk)
    elif path.suffix == ".feather":
        pa.feather.write_feather(data, path, chunksize=chunk)
    else:
        new = pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, new(file, data.schema) as writer:
            writer.write_table(data, max_chunksize=chunk)
    return path


def plain(batch):
    """Arrays without what the extension wants to know beside them."""
    return {name: array.tolist() for name, (array, _) in batch.items()}


def rows(*paths, **options):
    return Rows(Files([str(path) for path in paths]), Columns("data", **options))


ROW_NONE = "[data] expected arrays of numbers as rows of ids, got rows that are none"
BATCHES = [
    ({"ids": [[[1, 2], [3]], [[1, 2], [3]]]}, {}, ROW_NONE),
    ({"ids": 3}, {"shift_labels": True}, ROW_NONE),
    ({"ids": [[1, 2], [0.5]]}, {"shift_labels": True}, "[data] expected one integer for each token of ids, got rows of float64 "
     "and shape (1,)"),
    ({"ids": np.zeros((2, 3, 4), int)}, {"shift_labels": True}, "got rows of int64 and shape (3, 4)"),
]


@pytest.mark.parametrize("batch, options, text", BATCHES)
def test_rows_that_are_no_sequences_are_named(batch, options, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onnx_fp8.Note)
        with pytest.raises(onnx_fp8.Error, match=re.escape(text)):
            Columns("data", pad_to=4, **options).finished(batch, ["ids", "labels"])


def test_padding_has_its_own_number():
    """It may be larger than the dtype of the tokens holds."""
    narrow = [np.array([1, 2], np.uint8), np.array([3], np.uint8)]
    padded = Columns("data", pad_to=3, pad_id=300).finished({"ids": narrow}, ["ids"])
    assert padded["ids"].tolist() == [[1, 2, 300], [3, 300, 300]]
    with pytest.raises(onnx_fp8.OptionError, match="`pad_id`: expected an integer, got 1.5"):
        Columns("data", pad_to=3, pad_id=1.5)


def test_labels_are_padded_as_the_loss_says():
    columns, batch = Columns("data", pad_to=3), {"ids": [[1, 2], [3]], "y": [[4, 5], [6]]}
    columns.labels = {"y": -1}
    assert columns.finished(dict(batch), ["ids", "y"])["y"].tolist() == [[4, 5, -1], [6, -1, -1]]
    columns.labels = {"y": None}
    with pytest.raises(onnx_fp8.Error, match=re.escape("[data] can't pad y: the loss counts each number of it")):
        columns.finished(dict(batch), ["ids", "y"])


def test_an_empty_row_is_padding_alone():
    columns = Columns("data", pad_to=2, shift_labels=True)
    with pytest.warns(onnx_fp8.Note, match="shifted by one"):
        batch = columns.finished({"ids": ([], [5, 6])}, ["ids", "labels"])
    assert batch["ids"].tolist() == [[0, 0], [5, 6]] and batch["labels"].tolist() == [[-100, -100], [6, -100]]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "stream.arrow", "a.feather"])
def test_rows_of_files_are_padded_to_the_bucket(name, tmp_path):
    path = write(table(), tmp_path / name)
    data = rows(path, path, pad_to=[8, 4], pad_id=99)
    assert data.samples == 12
    batch = data.rows([3, 6, 4], ["input_ids", "attention_mask", "labels"])
    assert plain(batch) == {"input_ids": [TOKENS[3], [0, 1, 2, 99], [40, 99, 99, 99]],
                            "attention_mask": [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]],
                            "labels": [TOKENS[3], [0, 1, 2, -100], [40, -100, -100, -100]]}
    assert plain(data.rows([7], ["input_ids"])) == {"input_ids": [TOKENS[1] + [99] * 3]}


def test_columns_of_numbers_and_of_fixed_lists(tmp_path):
    images = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12, dtype=np.float32)), 2)
    kinds = pa.array(["a", "b", "a", "b", "a", "b"]).dictionary_encode().indices
    data = rows(write(pa.table({"x": images, "label": kinds, "deep": [[[i, 1], [2, 3]] for i in range(6)]}), tmp_path / "a.arrow"))
    batch = data.rows([5, 0], ["x", "labels", "deep"])
    assert batch["x"][0].dtype == np.float32
    assert plain(batch) == {"x": [[10, 11], [0, 1]], "labels": [1, 0], "deep": [[[5, 1], [2, 3]], [[0, 1], [2, 3]]]}


def test_labels_of_the_next_token_leave_the_padding_out(tmp_path):
    padded = [row + [0] * (6 - len(row)) for row in TOKENS]
    masks = [[1] * n + [0] * (6 - n) for n in LENGTHS]
    path = write(pa.table({"input_ids": padded, "attention_mask": masks}), tmp_path / "a.parquet")
    batch = rows(path, shift_labels=True).rows([0, 5], ["input_ids", "attention_mask", "labels"])
    assert plain(batch)["labels"] == [[1, 2, -100, -100, -100, -100], [51, 52, 53, 54, 55, -100]]
    ragged = rows(write(table(), tmp_path / "b.parquet"), shift_labels=True, pad_to=4)
    assert plain(ragged.rows([0], ["input_ids", "labels"]))["labels"] == [[1, 2, -100, -100]]


def test_documents_of_a_row_have_labels_and_padding_of_their_own(tmp_path):
    documents = [[4, 4, 0, 1, 1], [-1, 3]]
    path = write(pa.table({"input_ids": [[1, 2, 3, 4, 5], [6, 7]], "documents": documents}), tmp_path / "a.parquet")
    data = rows(path, segments="documents", pad_to=6, pad_id=9, shift_labels=True)
    names = ["input_ids", "documents", "labels"]
    assert plain(data.rows([0, 1], names)) == {"input_ids": [[1, 2, 3, 4, 5, 9], [6, 7, 9, 9, 9, 9]],
                                               "documents": [[4, 4, 0, 1, 1, 5], [-1, 3, 4, 4, 4, 4]],
                                               "labels": [[2, -100, -100, 5, -100, -100], [-100] * 6]}
    # A mask hides the padding from its own document, too.
    masked = plain(data.rows([0, 1], [*names, "attention_mask"]))
    assert masked["documents"] == [[4, 4, 0, 1, 1, 1], [-1, 3, 3, 3, 3, 3]]
    assert masked["attention_mask"] == [[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]]


def test_it_is_told_which_column_goes_where(tmp_path):
    path = write(table(label=range(6), text=["a"] * 6), tmp_path / "a.parquet")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", onnx_fp8.Note)
        data = rows(path, columns={"labels": None})
        for _ in range(2):
            assert plain(data.rows([0], ["tokens", "labels"])) == {"tokens": [TOKENS[0]], "labels": [0]}
    assert [str(w.message) for w in caught] == ["[data] the batches give label as labels, input_ids as tokens",
                                                "[data] text of the batches is no input of the model"]
    assert plain(rows(path, columns={"label": "x"}).rows([4], ["x", "labels"])) == {"x": [4], "labels": [TOKENS[4]]}


@pytest.mark.parametrize("options, indices, names, text", [
    ({}, [0, 1], ["input_ids"], "[data] expected sequences of one length in input_ids, got lengths from 3 to 5: `pad_to` pads"),
    ({"pad_to": 4}, [0, 1], ["input_ids"], "[data] expected sequences of at most 4, the largest of `pad_to`, got 5 in row 1"),
    ({"pad_to": 4}, [0, 1], ["number"], "[data] expected an input of sequences of integers for `pad_to`"),
    ({"pad_to": 8}, [0, 1], ["input_ids", "floats"], "[data] expected integers in floats, whose rows have other lengths"),
    ({"pad_to": 8}, [0, 1], ["input_ids", "twisted"], "[data] expected rows of twisted as long as those of input_ids"),
    ({}, [1], ["text"], "a.parquet] column text, row 1: expected numbers or lists of numbers, got string"),
    ({}, [0, 2], ["gap"], "a.parquet] column gap, row 2: expected a value, got null"),
    ({}, [3], ["gaps"], "a.parquet] column gaps, row 3: expected a value, got null"),
    ({}, [0], ["uneven"], "a.parquet] column uneven, row 0: expected lists of one length inside a list"),
    ({"columns": {"no": "x"}}, [0], ["x"], "`columns`: `data` has no column no, only input_ids"),
    ({"columns": {"text": "y"}}, [0], ["x"], "`columns`: the model has no input y, only x"),
    ({"columns": {"text": "labels"}}, [0], ["labels"], "`columns`: labels and text are both for the input labels"),
])
def test_rows_that_do_not_fit_are_named(options, indices, names, text, tmp_path):
    more = {"number": range(6), "text": ["a"] * 6, "gap": [1, 2, None, 4, 5, 6], "gaps": [[1, None]] * 6,
            "floats": [[0.5] * n for n in LENGTHS], "twisted": TOKENS[::-1], "uneven": [[[1], [2, 3]]] * 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onnx_fp8.Note)
        with pytest.raises(onnx_fp8.Error, match=re.escape(text)):
            rows(write(table(**more), tmp_path / "a.parquet"), **options).rows(indices, names)


@pytest.mark.parametrize("pad_to", [0, [], [8, -1], [True], "8", 8.0])
def test_lengths_are_whole_numbers(pad_to):
    with pytest.raises(onnx_fp8.OptionError, match="`pad_to`: expected lengths of at least 1"):
        Columns("data", pad_to=pad_to)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "stream.arrow", "a.feather"])
def test_damaged_files_are_errors(name, tmp_path):
    """Cut anywhere, or with other bytes at the end and in the middle."""
    good = write(table(), tmp_path / name).read_bytes()
    bad = tmp_path / f"stream_bad_{name}"
    files = [good[:n] for n in range(0, len(good), max(len(good) // 40, 1))]
    files += [good[:n] + bytes(255 - b for b in good[n:n + 8]) + good[n + 8:] for n in range(0, len(good), max(len(good) // 40, 1))]
    for content in files:
        bad.write_bytes(content)
        try:
            data = rows(bad, pad_to=64)
            if data.samples:
                data.rows([data.samples - 1, 0], ["input_ids"])
        except onnx_fp8.Error as error:
            assert "stream_bad" in str(error) or "columns" in str(error) or "[data]" in str(error)


def test_other_files_are_named(tmp_path):
    with pytest.raises(onnx_fp8.Error, match="none.parquet] can't be opened"):
        rows(tmp_path / "none.parquet")
    a, b = write(table(), tmp_path / "a.parquet"), write(pa.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(onnx_fp8.Error, match=re.escape("b.parquet] expected the columns of ")):
        rows(a, b)
    with pytest.raises(onnx_fp8.OptionError, match="or other files, got both"):
        onnx_fp8.train(digits.MODEL, data=[str(a), "b.npz"], out=tmp_path / "run", steps=1, **RUN)
    with pytest.raises(onnx_fp8.OptionError, match="`data`: expected files, got a table"):
        onnx_fp8.calibrate(digits.MODEL, tmp_path / "scales.json", data=a)
    for option in ({"columns": {"a": "b"}}, {"pad_to": 8}, {"pad_id": 1}, {"shift_labels": True}):
        with pytest.raises(onnx_fp8.OptionError, match=f"`{list(option)[0]}` is for tables, datasets and batches"):
            onnx_fp8.train(digits.MODEL, data=digits.arrays(), out=tmp_path / "run", steps=1, **option, **RUN)


def test_without_pyarrow_it_is_named(tmp_path, monkeypatch):
    path = write(table(), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(onnx_fp8.Error, match="a.parquet] needs the package pyarrow, which can't be imported"):
        rows(path)


class Listed:
    """As datasets.Dataset: rows by a list of indices."""

    def __init__(self, arrays):
        self._arrays, self.column_names = arrays, list(arrays)

    def __len__(self):
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, indices):
        return {name: [array[i].tolist() for i in indices] for name, array in self._arrays.items()}


def test_a_dataset_gives_its_rows():
    data = Rows(Dataset("data", Listed({"x": np.arange(6).reshape(3, 2), "label": np.arange(3)})), Columns("data"))
    assert data.samples == 3
    assert plain(data.rows([2, 0], ["x", "labels"])) == {"x": [[4, 5], [0, 1]], "labels": [2, 0]}


def test_an_evaluation_is_that_of_the_same_arrays(tmp_path):
    """Of files, tables, datasets, arrays and batches, the last one smaller."""
    arrays = {name: array[:50] for name, array in digits.arrays().items()}
    np.savez(tmp_path / "a.npz", **arrays)
    columns = pa.table({"x": pa.array([list(row) for row in arrays["x"]], pa.list_(pa.float32())),
                        "target": arrays["labels"]})
    parquet = write(columns, tmp_path / "a.parquet", chunk=20)
    batches = [{name: array[i:i + 20] for name, array in arrays.items()} for i in (0, 20, 40)]
    count = {"compute_metrics": lambda outputs, labels: {"counted": len(outputs["logits"]) + len(labels)}}
    size = {"batch_size": 20}

    def evaluated(data, **options):
        return onnx_fp8.evaluate(digits.MODEL, data=data, loss="cross_entropy", **count, **options)

    expected = evaluated(tmp_path / "a.npz", **size)
    assert expected["samples"] == 50 and expected["counted"] == 100
    for data, options in ((parquet, {"columns": {"target": "labels"}, **size}), (Listed(arrays), size), (arrays, size),
                          (batches, {}), (iter(batches), {})):
        assert evaluated(data, **options) == expected, type(data)
    assert onnx_fp8.evaluate(digits.MODEL, data=arrays, loss="cross_entropy", **size)["loss"] == expected["loss"]


@pytest.mark.parametrize("form", ["parquet", "dataset"])
def test_a_run_is_that_of_the_same_arrays(form, tmp_path):
    """Shuffled, with a validation, and resumed in the middle of a pass."""
    arrays = {name: array[:90] for name, array in digits.arrays().items()}
    if form == "dataset":
        data = Listed(arrays)
    else:
        columns = {"x": [list(row) for row in arrays["x"]], "label": arrays["labels"]}
        data = write(pa.table({"x": pa.array(columns["x"], pa.list_(pa.float32())), "label": columns["label"]}),
                     tmp_path / "a.parquet", chunk=40)
    options = RUN | {"batch_size": 20, "seed": 5, "shuffle_block": 30}
    onnx_fp8.train(digits.MODEL, data=arrays, val_data=arrays, out=tmp_path / "arrays", steps=7, **options)
    onnx_fp8.train(digits.MODEL, data=data, val_data=data, out=tmp_path / "rows", steps=3, **options)
    onnx_fp8.train(data=data, val_data=data, out=tmp_path / "rows", steps=7, resume=True, progress=False)
    ours, theirs = (program.losses(tmp_path / name) for name in ("rows", "arrays"))
    assert ours == theirs and len(ours) == 7
    assert program.state_bytes(tmp_path / "rows") == program.state_bytes(tmp_path / "arrays")
