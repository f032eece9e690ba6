# SPDX-License-Identifier: Apache-2.0
"""What the program prints beside its results are warnings of the package, at the caller's line."""
import warnings

import digits
import numpy as np
import program
import pytest

import onnx_fp8

# In bfloat16: a machine that multiplies it faster than float32 has a note more for other runs.
RUN = {"loss": "cross_entropy", "batch_size": 32, "dtype": "bfloat16", "progress": False}


def notes_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    assert all(w.category is onnx_fp8.Note and w.filename == __file__ for w in caught), caught
    return [str(w.message) for w in caught]


def train(out, data, **options):
    return onnx_fp8.train(digits.MODEL, data=data, out=out, **(RUN | {"steps": 2} | options))


def test_notes_of_a_run(tmp_path, capfd):
    data = digits.arrays()
    data |= {"x": data["x"].astype(np.float64), "id": np.arange(len(data["x"]))}
    expected = ['[data] array "x" of double is converted to float',
                '[data] array "id" is no input of the model',
                "28 of 1500 samples are left out of each epoch: they do not fill a batch of 32"]
    assert notes_of(lambda: train(tmp_path / "run", data)) == expected
    assert capfd.readouterr() == ("", "")
    # The program prints the same, and before it what trains: here a line of the progress.
    np.savez(tmp_path / "d.npz", **data)
    done = program.run("train", digits.MODEL, "--data", tmp_path / "d.npz", "--loss", "cross_entropy", "--batch-size",
                       32, "--dtype", "bfloat16", "--steps", 2, "--out", tmp_path / "theirs")
    printed = [line for line in done.stderr.splitlines() if line.startswith("onnx-fp8: note: ")]
    assert printed.pop(0).startswith("onnx-fp8: note: trains 8 of 8 parameters, ")
    assert printed == [f"onnx-fp8: note: {text.replace('[data]', '[' + str(tmp_path / 'd.npz') + ']')}"
                       for text in expected]


def test_notes_name_options_as_keywords(tmp_path):
    out = tmp_path / "run"
    text = f"there is no checkpoint in {out}: the run starts at the beginning"
    assert text in notes_of(lambda: train(out, digits.TRAIN, resume=True))
    with pytest.raises(ValueError, match="enough"):
        train(out, digits.TRAIN, resume=True, steps=9, on_step=lambda event: fail(event["step"] == 4))
    seen = []
    with warnings.catch_warnings(record=True) as caught, pytest.raises(onnx_fp8.Error):
        warnings.simplefilter("always")
        train(tmp_path / "other", digits.arrays() | {"labels": late_mistake()}, no_shuffle=True, steps=9)
    seen = [str(w.message) for w in caught]
    assert any(text.startswith("an error ends the run; step 2 is saved, `resume` goes on") for text in seen), seen


def fail(now):
    if now:
        raise ValueError("enough")


def late_mistake():
    """Labels whose third batch has a class that does not exist."""
    labels = digits.arrays()["labels"].copy()
    labels[70] = 99
    return labels


def test_a_skipped_step_is_told(tmp_path):
    data = digits.arrays()
    data["x"][40] = np.nan
    told = notes_of(lambda: train(tmp_path / "run", data, no_shuffle=True))
    assert [text for text in told if text.startswith("step 2 is skipped, nothing changed: ")], told


def test_notes_of_other_commands(tmp_path, capfd):
    np.savez(tmp_path / "d.npz", other=np.zeros(3), **validation())
    text = f'[{tmp_path / "d.npz"}] array "other" is no input of the model'
    train(tmp_path / "run", digits.TRAIN)
    assert notes_of(lambda: onnx_fp8.evaluate(tmp_path / "run", data=tmp_path / "d.npz")) == [text]
    told = notes_of(lambda: onnx_fp8.calibrate(digits.MODEL, tmp_path / "s.json", data=tmp_path / "d.npz",
                                               loss="cross_entropy", steps=2))
    assert text in told
    assert capfd.readouterr() == ("", "")  # no progress line of the program


def validation():
    return dict(np.load(digits.VAL))


def test_notes_as_errors_end_the_call(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", onnx_fp8.Note)
        with pytest.raises(onnx_fp8.Note, match="28 of 1500 samples"):
            train(tmp_path / "run", digits.TRAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", onnx_fp8.Note)
        train(tmp_path / "silent", digits.TRAIN)
