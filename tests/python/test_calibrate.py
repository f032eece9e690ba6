# SPDX-License-Identifier: Apache-2.0
"""`calibrate`: its scales compared with numpy, and commands that read them. bad_input/scales.py has its errors."""
import json

import numpy as np
import onnx
import pytest
from program import FIXTURES, losses, run, write_random
from safetensors.numpy import load_file

MLP = FIXTURES / "mlp" / "d18.onnx"
CE = ["--loss", "cross_entropy"]
E4M3_MAX = np.float32(448)
BATCH, STEPS = 4, 5


def calibrate(tmp, *flags, data="d.npz", out="scales.json", code=0):
    """The scales by key, and the program's output."""
    done = run("calibrate", MLP, "--data", tmp / data, *CE, "--batch-size", BATCH, "--steps", STEPS, "-o", tmp / out,
               *flags, code=code)
    path = tmp / out
    return json.loads(path.read_text())["scales"] if path.exists() else None, done


def weights():
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(MLP).graph.initializer}


def near(scale, amax):
    """Equal in either order of the two roundings."""
    return scale == pytest.approx(np.float32(amax) / E4M3_MAX, rel=2.0**-23)


@pytest.mark.parametrize("batch", range(STEPS))
def test_scales_are_the_maxima_of_all_batches(tmp_path, batch):
    """The largest value may be in any of them; data are shuffled, and each batch is seen once."""
    arrays = dict(np.load(write_random(tmp_path / "d.npz", BATCH * STEPS)))
    arrays["x"][batch * BATCH + 1, 7] = -9.25
    np.savez(tmp_path / "d.npz", **arrays)
    scales, done = calibrate(tmp_path, "--json")
    assert json.loads(done.stdout) == {"scales": 9, "steps": STEPS, "out": str(tmp_path / "scales.json")}
    assert near(scales["fc1.weight/forward/input/float8e4m3fn#0"], 9.25)
    for name in ("fc1", "fc2", "head"):
        assert near(scales[f"{name}.weight/forward/weight/float8e4m3fn#0"], np.abs(weights()[f"{name}.weight"]).max())
    assert all(0 < scale < 1 for scale in scales.values())
    # Gradients of a mean over 4 samples: no element is larger than 1/4.
    assert scales["head.weight/dgrad/grad_output/float8e5m2#0"] <= 0.25 / 57344


def test_fewer_batches_see_less(tmp_path):
    arrays = dict(np.load(write_random(tmp_path / "d.npz", BATCH * STEPS)))
    arrays["x"] *= np.exp2(np.arange(BATCH * STEPS, dtype=np.float32))[:, None]
    np.savez(tmp_path / "d.npz", **arrays)
    seen = []
    maxima = np.abs(arrays["x"]).max(axis=1)
    for steps in range(1, STEPS + 1):
        run("calibrate", MLP, "--data", tmp_path / "d.npz", *CE, "--batch-size", BATCH, "--steps", steps, "-o",
            tmp_path / "s.json")
        scale = json.loads((tmp_path / "s.json").read_text())["scales"]["fc1.weight/forward/input/float8e4m3fn#0"]
        assert any(near(scale, amax) for amax in maxima)
        seen.append(scale)
    assert seen == sorted(seen) and near(seen[-1], maxima.max()) and seen[0] < seen[-1]


def test_training_keeps_the_scales(tmp_path):
    data = write_random(tmp_path / "d.npz", BATCH * STEPS)
    scales, done = calibrate(tmp_path)
    assert f"scales.json: 9 scales from {STEPS} batches" in done.stdout
    flags = ["--data", data, *CE, "--batch-size", BATCH, "--recipe", "static"]
    run("train", MLP, *flags, "--scales", tmp_path / "scales.json", "--steps", 4, "--out", tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "step_00000004"
    slots = json.loads(json.loads((checkpoint / "manifest.json").read_text())["notes"]["session.fp8_slots"])
    held = load_file(checkpoint / "state.safetensors")
    assert "fp8.amax_history" not in held and len(slots) == 9
    for slot, scale in zip(slots, held["fp8.scale"]):
        key = [k for k in scales if k.startswith(f"{slot['fqn']}/{slot['gemm']}/{slot['operand']}/")]
        assert scale == np.float32(scales[key[0]])
    # The run's folder also serves as a file of scales, and the file may be removed.
    run("train", MLP, *flags, "--scales", tmp_path / "run", "--steps", 4, "--out", tmp_path / "again")
    assert losses(tmp_path / "again") == losses(tmp_path / "run")
    # So does the run's own checkpoint.
    (tmp_path / "scales.json").rename(tmp_path / "moved.json")
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 8)
    run("train", MLP, *flags, "--scales", tmp_path / "moved.json", "--steps", 8, "--out", tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    run("eval", tmp_path / "run", "--data", data)
    text = json.loads((tmp_path / "moved.json").read_text())
    # A scale ten times as large clips nothing, but rounds more.
    text["scales"]["fc1.weight/forward/input/float8e4m3fn#0"] *= 10
    (tmp_path / "other.json").write_text(json.dumps(text))
    run("train", MLP, *flags, "--scales", tmp_path / "other.json", "--steps", 4, "--out", tmp_path / "other")
    assert losses(tmp_path / "other") != losses(tmp_path / "run")


def test_a_gradient_of_the_input_needs_no_other_scale(tmp_path):
    """It adds a dgrad to the first layer."""
    data = write_random(tmp_path / "d.npz", BATCH * STEPS)
    calibrate(tmp_path)
    run("grad", MLP, "--data", data, *CE, "--recipe", "static", "--scales", tmp_path / "scales.json", "--input-grads",
        "-o", tmp_path / "g.npz")
    assert "x" in " ".join(np.load(tmp_path / "g.npz").files)


def test_only_static_scales_are_looked_for(tmp_path):
    write_random(tmp_path / "d.npz", BATCH * STEPS)
    whole, _ = calibrate(tmp_path)
    head, _ = calibrate(tmp_path, "--recipe", "off", "--recipe-for", "head=static", out="head.json")
    assert len(head) == 3 and all(key.startswith("head.weight/") for key in head)
    inputs, _ = calibrate(tmp_path, "--recipe", "tensorwise,i:sta_ten_e4m3", out="inputs.json")
    assert sorted(inputs) == sorted(key for key in whole if "/input/" in key)


def test_a_batch_that_is_not_finite_is_passed_over(tmp_path):
    arrays = dict(np.load(write_random(tmp_path / "d.npz", BATCH * STEPS)))
    amax = np.abs(arrays["x"]).max()
    sample = next(i for i in range(BATCH * STEPS) if np.abs(arrays["x"][i]).max() < amax)
    arrays["x"][sample, 0] = np.inf
    np.savez(tmp_path / "d.npz", **arrays)
    scales, done = calibrate(tmp_path)
    assert done.stderr.count("onnx-fp8: warning: fc1.weight forward input is not finite") == 1
    assert all(np.isfinite(scale) and scale > 0 for scale in scales.values())


@pytest.mark.parametrize("value", [0, np.inf, np.nan])
def test_useless_data(tmp_path, value):
    arrays = dict(np.load(write_random(tmp_path / "d.npz", BATCH * STEPS)))
    np.savez(tmp_path / "d.npz", **{**arrays, "x": np.full_like(arrays["x"], value)})
    scales, done = calibrate(tmp_path, code=1)
    assert scales is None
    assert (f"onnx-fp8: [{MLP}] fc1.weight/forward/input/float8e4m3fn#0 was zero or not finite in all {STEPS} batches: "
            "there is no scale for it; leave its layer out or take other data") in done.stderr
