# SPDX-License-Identifier: Apache-2.0
"""onnx_fp8.train with an iterable of batches, as a DataLoader, in place of files."""
import re
import warnings

import digits
import numpy as np
import program
import pytest

import onnx_fp8
from test_session import OverDLPack

RUN = {"loss": "cross_entropy", "recipe": "delayed", "optimizer": "adamw", "lr": 1e-3, "progress": False}


class Loader:
    """A DataLoader's form: a length, and batches anew in each pass."""

    def __init__(self, batches):
        self.batches, self.passes = batches, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.passes += 1
        return iter(self.batches)


def rows(arrays, size=30, count=None):
    number = len(arrays["x"]) // size if count is None else count
    return [{name: array[i * size:(i + 1) * size] for name, array in arrays.items()} for i in range(number)]


def validation():
    return dict(np.load(digits.VAL))


def train(out, data, val_data=None, **options):
    return onnx_fp8.train(digits.MODEL, data=data, val_data=val_data, out=out, **(RUN | options))


def without_speed(folder):
    return program.metrics_without_speed(folder)


@pytest.mark.parametrize("form", ["dicts", "tuples", "DLPack"])
def test_a_run_is_that_of_the_same_arrays(form, tmp_path):
    """Not shuffled: the same batches, over two passes and a half, and the same validations."""
    arrays = {name: array[:120] for name, array in digits.arrays().items()}
    train(tmp_path / "arrays", arrays, validation(), batch_size=30, no_shuffle=True, steps=10, val_every=5)
    batches = rows(arrays)
    if form == "tuples":
        batches = [(b["x"], b["labels"]) for b in batches]
    if form == "DLPack":
        batches = [{name: OverDLPack(array) for name, array in b.items()} for b in batches]
    loader, held = Loader(batches), Loader(rows(validation(), 50, 6))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", onnx_fp8.Note)
        train(tmp_path / "batches", loader, held, steps=10, val_every=5)
    assert loader.passes == 3 and held.passes == 1
    ours, theirs = without_speed(tmp_path / "batches"), without_speed(tmp_path / "arrays")
    assert [m for m in ours if "loss" in m] == [m for m in theirs if "loss" in m]
    for a, b in zip(*([m for m in run if "val_loss" in m] for run in (ours, theirs))):
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-5) and a["val_accuracy"] == b["val_accuracy"]
    assert program.state_bytes(tmp_path / "batches") == program.state_bytes(tmp_path / "arrays")
    told = [str(w.message) for w in caught if "in this order" in str(w.message)]
    expected = ["[data] the arrays of a batch are taken as x, labels, in this order"]
    assert told == (expected if form == "tuples" else [])


def test_epochs_are_passes(tmp_path):
    loader = Loader(rows(digits.arrays(), 30, 7))
    assert train(tmp_path / "run", loader, epochs=3)["steps"] == 21 and loader.passes == 3
    with pytest.raises(onnx_fp8.OptionError, match="`epochs`: expected data whose length is known"):
        train(tmp_path / "other", (b for b in loader), epochs=3)


def test_batches_of_a_validation_have_their_own_size(tmp_path):
    batches = rows(digits.arrays(), 30, 3)
    with pytest.raises(onnx_fp8.OptionError, match="`val_batch_size` is for files and arrays: the batches of `val_data`"):
        train(tmp_path / "other", batches, batches, steps=3, val_batch_size=10)


def test_a_generator_is_enough_for_its_steps(tmp_path):
    batches = rows(digits.arrays(), 30, 5)
    extra = [b | {"index": np.arange(30)} for b in batches]
    with pytest.warns(onnx_fp8.Note, match=re.escape("[data] index of the batches is no input of the model")):
        assert train(tmp_path / "run", (b for b in extra), steps=5)["steps"] == 5
    text = "[data] expected more batches, got 5: a generator gives its batches once"
    with pytest.raises(onnx_fp8.Error, match=re.escape(text)):
        train(tmp_path / "more", (b for b in batches), steps=9)
    # The steps before are saved, and a run goes on with other batches, or with arrays.
    assert train(tmp_path / "more", batches, resume=True, steps=7)["steps"] == 7
    assert onnx_fp8.train(out=tmp_path / "more", data=digits.arrays(), resume=True, steps=9, batch_size=30,
                          progress=False)["steps"] == 9


X, LABELS = np.zeros((4, 64), np.float32), np.zeros(4, np.int64)
BAD = [
    (7, onnx_fp8.OptionError, "`data`: expected files, a dict of arrays or an iterable of batches, got int"),
    ([X, X], onnx_fp8.Error, "[data] expected batches that are dicts of arrays by the names of inputs, x, labels, or tuples "
     "in this order, got ndarray"),
    ([(X,)], onnx_fp8.Error, "[data] expected batches of 2 arrays, x, labels, got 1"),
    ([{"x": X}], onnx_fp8.Error, '[data] expected an array "labels" in a batch, got x'),
    ([{"x": X, "labels": LABELS + 0.5}], onnx_fp8.Error, "[labels] expected int64, got double"),
    ([{"x": X[0], "labels": 3}], onnx_fp8.Error, "got [64]"),
    ({0: {"x": X[0], "labels": 3}}, onnx_fp8.Error, "[data] expected names of arrays as keys, got 0: a dict of rows is one "
     "array for each name"),
    ({"x": [X[0], X[0, :9]], "labels": [1, 2]}, onnx_fp8.Error, "[x] expected an array of numbers, or rows of one length"),
]


@pytest.mark.parametrize("data, kind, text", BAD)
def test_other_things_are_named(data, kind, text, tmp_path):
    with pytest.raises(kind, match=re.escape(text)):
        train(tmp_path / "run", data, steps=2)


def test_options_of_files_do_not_fit(tmp_path):
    for option in ({"batch_size": 8}, {"no_shuffle": True}):
        with pytest.raises(onnx_fp8.OptionError, match=f"`{list(option)[0]}` is for files and arrays"):
            train(tmp_path / "run", rows(digits.arrays(), 30, 2), steps=2, **option)
    with pytest.raises(onnx_fp8.OptionError, match="`data`: expected files, got list"):
        onnx_fp8.evaluate(digits.MODEL, data=rows(digits.arrays(), 30, 2), loss="cross_entropy")
    with pytest.raises(onnx_fp8.Error, match=re.escape("[val_data] expected at least one batch, got none")):
        train(tmp_path / "run", digits.arrays(), iter([]), steps=2)


def test_an_error_of_the_iterable_ends_the_run(tmp_path):
    class Mine(Exception):
        pass

    def broken():
        yield from rows(digits.arrays(), 30, 3)
        raise Mine("no more")

    with pytest.raises(Mine, match="no more"):
        train(tmp_path / "run", broken(), steps=9)
    assert train(tmp_path / "run", rows(digits.arrays(), 30, 3), resume=True, steps=4)["steps"] == 4
