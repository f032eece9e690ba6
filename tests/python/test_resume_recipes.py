# SPDX-License-Identifier: Apache-2.0
"""Runs that go on with another recipe: flags beside --resume, the delayed scales afterwards, and the note on them."""
import json
import pathlib
import shutil

import numpy as np
import pytest
from program import FIXTURES, losses, metrics, run, write_random
from safetensors.numpy import load_file

MLP = FIXTURES / "mlp" / "d18.onnx"
HISTORY = 16  # the default
NOTE = "onnx-fp8: note: delayed scales: "
# --recipe and further flags, and how often scales move in a step.
WAYS = {
    "plain": ("delayed", [], 1),
    "accumulation": ("delayed", ["--grad-accum", 2], 1),
    "micro": ("delayed,update:micro", ["--grad-accum", 2], 2),
}
ways = pytest.mark.parametrize("way", WAYS)


def begin(tmp, way, out="run", steps=3):
    recipe, more, _ = WAYS[way]
    data = write_random(tmp / "d.npz", 64)
    run("train", MLP, "--data", data, "--loss", "cross_entropy", "--batch-size", 8, "--steps", steps, "--recipe",
        recipe, *more, "--out", tmp / out)
    return tmp / out


def resume(out, steps, *flags):
    """Goes on up to `steps`; the note on the scales, "" if there is none."""
    lines = run("train", "--resume", "--out", out, "--steps", steps, *flags).stderr.splitlines()
    notes = [line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)]
    assert len(notes) <= 1 and not any(m.get("skipped") for m in metrics(out))
    return "".join(notes)


def flag(out, name):
    return json.loads((out / "config.json").read_text())["flags"].get(name)


def scales(out):
    """(scale, history) by key, from the newest checkpoint."""
    folder = pathlib.Path(out) / "checkpoints" / (out / "latest").read_text().strip()
    slots = json.loads(json.loads((folder / "manifest.json").read_text())["notes"]["session.fp8_slots"])
    state = load_file(folder / "state.safetensors")
    if not slots:
        assert not [name for name in state if name.startswith("fp8.")]
        return {}
    assert state["fp8.scale"].shape == (len(slots),) == state["fp8.amax_history"].shape[1:]
    return {tuple(slot[k] for k in ("fqn", "gemm", "operand")): (scale, history)
            for slot, scale, history in zip(slots, state["fp8.scale"], state["fp8.amax_history"].T)}


@ways
def test_another_history(tmp_path, way):
    """After 6 steps no amax is forgotten yet: the losses are those without a change."""
    whole, out = begin(tmp_path, way, "whole", steps=6), begin(tmp_path, way)
    recipe = WAYS[way][0]
    assert resume(out, 5, "--recipe", f"{recipe},history:14") == (
        f"9 go on, 0 start anew, 0 are dropped; their history is 14 steps, was {HISTORY}")
    assert flag(out, "--recipe") == [f"{recipe},history:14"]
    assert resume(out, 6) == ""  # the note appears once, and the scales stay
    assert losses(out) == losses(whole)
    before, after = scales(whole), scales(out)
    for key, (scale, history) in after.items():
        assert scale == before[key][0] and len(history) == 14
        np.testing.assert_array_equal(history, before[key][1][2:])
    assert resume(out, 7, "--recipe", f"{recipe},history:2") == (
        "9 go on, 0 start anew, 0 are dropped; their history is 2 steps, was 14")
    assert all(len(history) == 2 for _, history in scales(out).values())


@ways
def test_another_filter(tmp_path, way):
    out = begin(tmp_path, way)
    moves = WAYS[way][2]
    before = scales(out)
    assert resume(out, 4, "--filter-fqns", "fc2") == "6 go on, 0 start anew, 3 are dropped"
    after = scales(out)
    assert after.keys() == {key for key in before if key[0] != "fc2.weight"} and len(after) == 6
    for key, (_, history) in after.items():
        np.testing.assert_array_equal(history[1:-moves], before[key][1][1 + moves:])
    assert flag(out, "--filter-fqns") == ["fc2"]
    assert resume(out, 5, "--filter-fqns", "") == "6 go on, 3 start anew, 0 are dropped"
    assert flag(out, "--filter-fqns") is None
    for key, (scale, history) in scales(out).items():
        seen = np.count_nonzero(history)
        assert scale > 0 and seen == (moves if key[0] == "fc2.weight" else 5 * moves)
    assert resume(out, 6) == "" and len(scales(out)) == 9


@ways
def test_tensorwise_and_back(tmp_path, way):
    recipe, _, moves = WAYS[way]
    out = begin(tmp_path, way)
    assert resume(out, 4, "--recipe", "tensorwise") == "0 go on, 0 start anew, 9 are dropped"
    assert scales(out) == {} and flag(out, "--recipe") == ["tensorwise"]
    shutil.copytree(out, tmp_path / "other")
    assert resume(tmp_path / "other", 5) == ""
    assert resume(out, 5, "--recipe", recipe) == "0 go on, 9 start anew, 0 are dropped"
    assert flag(out, "--recipe") == [recipe] and len(scales(out)) == 9
    # Without a history delayed scaling is dynamic, until the scales move.
    assert (losses(out)[5] == losses(tmp_path / "other")[5]) == (moves == 1)
    assert resume(out, 6) == ""


@ways
def test_from_recipe_to_recipe(tmp_path, way):
    """A run may go through all of them; each replaces the flags of the one before."""
    out = begin(tmp_path, way, steps=1)
    begin(tmp_path, way, "delayed", steps=2)
    changes = [
        (["--recipe", "static", "--scales", tmp_path / "delayed"], "0 go on, 0 start anew, 9 are dropped"),
        (["--recipe", "rowwise,scales:e8m0"], ""),
        (["--recipe", "mxfp8,round:floor"], ""),
        (["--recipe", "blockwise"], ""),
        (["--recipe", "off", "--recipe-for", "fc1=delayed"], "0 go on, 3 start anew, 0 are dropped"),
        (["--recipe", "delayed", "--recipe-for", ""], "3 go on, 6 start anew, 0 are dropped"),
        (["--recipe", "off"], "0 go on, 0 start anew, 9 are dropped"),
    ]
    for step, (flags, note) in enumerate(changes, start=2):
        assert resume(out, step, *flags) == note, flags
        assert flag(out, "--recipe") == [flags[1]]
    assert sorted(losses(out)) == list(range(1, len(changes) + 2))
    assert all(np.isfinite(loss) for loss in losses(out).values())
    # A recipe that does not fit the run is refused, and nothing is written.
    config = (out / "config.json").read_text()
    done = run("train", "--resume", "--out", out, "--steps", 99, "--recipe", "tensorwise,scales:e8m0", code=2)
    assert "scales: e8m0 holds powers of two" in done.stderr
    assert (out / "config.json").read_text() == config
