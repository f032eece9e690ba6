# SPDX-License-Identifier: Apache-2.0
"""onnx_fp8.train with an iterable of batches, as a DataLoader, in place of files."""
import re
import signal
import threading
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
        onnx_fp8.calibrate(digits.MODEL, tmp_path / "scales.json", data=rows(digits.arrays(), 30, 2))
    with pytest.raises(onnx_fp8.OptionError, match="`batch_size` is for files and arrays: the batches of `data`"):
        onnx_fp8.evaluate(digits.MODEL, data=rows(digits.arrays(), 30, 2), loss="cross_entropy", batch_size=8)
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


@pytest.mark.parametrize("ahead", [0, 1, 2, 7])
def test_batches_drawn_ahead_are_the_same(ahead, tmp_path):
    batches = rows(digits.arrays(), 30, 5)
    train(tmp_path / "run", Loader(batches), steps=12, prefetch=ahead)
    train(tmp_path / "alone", batches * 3, steps=12, prefetch=0)
    assert without_speed(tmp_path / "run") == without_speed(tmp_path / "alone")
    assert threads() == []


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_iterable_may_fill_the_same_arrays_again(ahead, tmp_path):
    """A step of two batches, and a validation, have each batch as it was when it was drawn."""
    batches = rows(digits.arrays(), 30, 6)

    def refilled():
        x, labels = (np.empty_like(batches[0][name]) for name in ("x", "labels"))
        for batch in batches:
            x[:], labels[:] = batch["x"], batch["labels"]
            yield x, labels

    held = {name: np.empty_like(array) for name, array in batches[0].items()}

    def by_index(index):
        for name, array in held.items():
            array[:] = batches[index % 6][name]
        return held

    options = {"steps": 3, "val_every": 3, "grad_accum": 2, "prefetch": ahead}
    train(tmp_path / "list", batches, batches, **options)
    for name, given in (("passes", refilled), ("generator", refilled()), ("function", by_index)):
        train(tmp_path / name, given, refilled(), **options)
        assert without_speed(tmp_path / name) == without_speed(tmp_path / "list")


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("onnx_fp8")]


def test_no_more_is_drawn_ahead_than_asked_for(tmp_path):
    """A batch is drawn while a step computes: on another thread, and not beyond the bound."""
    batches, drawn, steps, others = rows(digits.arrays(), 30, 5), [], [], set()

    def endless():
        while True:
            drawn.append(len(steps))
            others.add(threading.current_thread() is not threading.main_thread())
            yield batches[0]

    train(tmp_path / "run", endless, steps=9, prefetch=3, on_step=steps.append)
    assert 9 <= len(drawn) <= 12 and others == {True}
    assert all(i - done <= 3 for i, done in enumerate(drawn))
    assert threads() == []


def test_an_interrupt_ends_a_run_that_waits_for_a_batch(tmp_path):
    """The iterable hangs until the run is over, as one that reads from a network may."""
    over, hangs = threading.Event(), threading.Event()
    batches = rows(digits.arrays(), 30, 3)

    def slow():
        yield from batches
        hangs.set()
        over.wait()

    def interrupt():
        hangs.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    try:
        with pytest.warns(onnx_fp8.Note, match="still making a batch"), pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run", slow, steps=9)
    finally:
        over.set()
        waiting.join()
    assert train(tmp_path / "run", batches, resume=True, steps=4)["steps"] == 4


def test_a_function_is_called_with_the_index(tmp_path):
    """So a run that is resumed goes on with exactly the next batch."""
    batches, asked = rows(digits.arrays(), 30, 7), []

    def batch(index):
        asked.append(index)
        return batches[index % 7]

    train(tmp_path / "whole", batches, steps=9)
    train(tmp_path / "run", batch, steps=4, prefetch=0)
    train(tmp_path / "run", batch, resume=True, steps=9, prefetch=2)
    assert asked[:9] == list(range(9)) and asked == list(range(len(asked))) and len(asked) <= 11
    assert without_speed(tmp_path / "run") == without_speed(tmp_path / "whole")
    with pytest.raises(onnx_fp8.OptionError, match="`val_data`: expected an iterable with an end, got a function"):
        train(tmp_path / "other", batches, batch, steps=2)
    with pytest.raises(onnx_fp8.Error, match="expected a batch of index 2, got none"):
        train(tmp_path / "other", lambda index: next(iter(batches[index:index + 1] if index < 2 else [])), steps=4)


def test_a_generator_function_gives_its_batches_again(tmp_path):
    batches = rows(digits.arrays(), 30, 3)

    def passes():
        yield from batches

    train(tmp_path / "run", passes, passes, steps=8, val_every=4)
    train(tmp_path / "list", batches, batches, steps=8, val_every=4)
    assert without_speed(tmp_path / "run") == without_speed(tmp_path / "list")


def test_columns_of_batches_have_other_names(tmp_path):
    batches = rows(digits.arrays(), 30, 3)
    other = [{"image": b["x"], "label": b["labels"], "labels": b["labels"][::-1]} for b in batches]
    train(tmp_path / "run", other, steps=3, columns={"image": "x", "label": "labels", "labels": None})
    train(tmp_path / "list", batches, steps=3)
    assert without_speed(tmp_path / "run") == without_speed(tmp_path / "list")
    for ahead in (-1, 1.5, True):
        with pytest.raises(onnx_fp8.OptionError, match="`prefetch`: expected a number of batches"):
            train(tmp_path / "other", batches, steps=3, prefetch=ahead)


GPT = program.FIXTURES / "nanogpt" / "d18.onnx"


@pytest.mark.parametrize("loss", [{}, {"ignore_index": -1}])
def test_padding_changes_no_step(loss, tmp_path):
    """Sequences of other lengths, padded to two buckets: the losses of the same sequences without padding."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 61, n) for n in (5, 8, 3, 8)]
    ragged = [{"input_ids": [a.tolist()], "labels": [a[::-1].tolist()]} for a in ids]
    exact = [{name: np.asarray(rows) for name, rows in batch.items()} for batch in ragged]
    options = {"loss": "cross_entropy", "optimizer": "sgd", "lr": 0.1, "steps": 4, "progress": False, "recipe": "off", **loss}
    onnx_fp8.train(GPT, data=ragged, out=tmp_path / "padded", pad_to=[8, 16], pad_id=7, **options)
    onnx_fp8.train(GPT, data=exact, out=tmp_path / "exact", **options)
    padded, alone = (program.losses(tmp_path / name) for name in ("padded", "exact"))
    assert padded == pytest.approx(alone, rel=1e-5) and len(alone) == 4
