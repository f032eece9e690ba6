# SPDX-License-Identifier: Apache-2.0
"""An If on data: the branch that is not taken leaves no trace, whatever its nodes compute from values that are not
meant for them."""
import json
import re

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from program import losses, run
from safetensors.numpy import load_file

onnxruntime.set_default_logger_severity(4)

# Each is fine at h > 0, and has an infinite derivative or none at h = 0; `h` is 0 if its branch is not taken.
PITFALLS = {
    "log": "a = Log(h)",
    "sqrt": "a = Sqrt(h)",
    "reciprocal": "a = Reciprocal(h)",
    "pow": "a = Pow(h, half)",
    "norm": "n = ReduceL2(h) a = Div(h, n)",
    "softmax_of_inf": "l = Log(h) n = Neg(l) a = Softmax(n)",
    "gather": "t = Gather(table, index) a = Mul(t, h)",
}
BRANCHES = """
y = If(c) <then_branch = yes () => (float[4,3] p) {{ {pitfall} p = MatMul(a, u) }},
           else_branch = no () => (float[4,3] q) {{ q = MatMul(h, v) }}>
"""
NESTED = """
y = If(c) <
  then_branch = yes () => (float[4,3] p) {{
    m = ReduceMax(h) d = Greater(m, half)
    p = If(d) <then_branch = outer () => (float[4,3] pp) {{ {pitfall} pp = MatMul(a, u) }},
               else_branch = inner () => (float[4,3] qq) {{ s = Sqrt(h) qq = MatMul(s, u) }}>
  }},
  else_branch = no () => (float[4,3] q) {{ q = MatMul(h, v) }}>
"""
LOOP = """
y = Loop(twice, , h) <body = each (int64 i, bool go, float[4,3] k) => (bool goes, float[4,3] z) {{
  goes = Identity(go)
  z = If(c) <then_branch = yes () => (float[4,3] p) {{ {pitfall} b = MatMul(a, u) p = Add(b, k) }},
             else_branch = no () => (float[4,3] q) {{ w2 = MatMul(k, v) q = Add(w2, h) }}>
}}>
"""
# The model for a known branch.
TAKEN = {
    ("branches", True): "{pitfall} y = MatMul(a, u)",
    ("branches", False): "y = MatMul(h, v)",
    ("nested", True): "{pitfall} y = MatMul(a, u)",
    ("nested", False): "y = MatMul(h, v)",
    ("loop", True): "{pitfall} b = MatMul(a, u) k = Add(b, h) y = Add(b, k)",
    ("loop", False): "k = MatMul(h, v) k2 = Add(k, h) k3 = MatMul(k2, v) y = Add(k3, h)",
}
FORMS = {"branches": BRANCHES, "nested": NESTED, "loop": LOOP}


def write_model(path, body, pitfall):
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(0.5, 1.5, (3, 3)) for name in "wuv"} | {"table": rng.normal(size=(5, 3))}
    constants = {"half": np.float32(0.5), "zero": np.float32(0),
                 "twice": np.array(2)}
    text = f"""
      <ir_version: 9, opset_import: ["" : 18]>
      m (float[4,3] x, float[4,1] gate, int64[4] index) => (float[4,3] out) {{
        h = MatMul(x, w)
        top = ReduceMax(gate)
        c = Greater(top, zero)
        {body.format(pitfall=PITFALLS[pitfall])}
        out = Add(y, h)
      }}"""
    model = onnx.parser.parse_model(text)
    tensors = {k: v.astype(np.float32) for k, v in weights.items()} | constants
    tensors = {k: v for k, v in tensors.items() if re.search(rf"\b{k}\b", text)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items())
    onnx.save(model, path)
    return path


def batch(taken):
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 1.0, (4, 3)) if taken else np.zeros((4, 3))
    return {"x": x.astype(np.float32), "gate": np.full((4, 1), 1 if taken else -1, np.float32),
            "index": np.array([1, 4, 0, 2]) if taken else np.array([7, -9, 99, 0]),
            "labels": rng.normal(size=(4, 3)).astype(np.float32)}


def gradients(model, data, folder):
    run("grad", model, "--data", data, "--loss", "mse", "--batch-size", 4, "--input-grads", "-o", folder / "g.safetensors")
    return load_file(folder / "g.safetensors")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pitfall", PITFALLS)
@pytest.mark.parametrize("taken", [True, False])
def test_gradients_are_those_of_the_branch_taken(tmp_path, form, pitfall, taken):
    np.savez(tmp_path / "d.npz", **batch(taken))
    got = gradients(write_model(tmp_path / "if.onnx", FORMS[form], pitfall), tmp_path / "d.npz", tmp_path)
    want = gradients(write_model(tmp_path / "plain.onnx", TAKEN[form, taken], pitfall), tmp_path / "d.npz", tmp_path)
    for name, tensor in want.items():
        np.testing.assert_allclose(got[name], tensor, rtol=1e-5, atol=1e-6, err_msg=name)
    others = {name for name in got if name.startswith("grad.")} - set(want)
    assert ("grad.v" if taken else "grad.u") in others
    for name in others:
        np.testing.assert_array_equal(got[name], 0, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("recipe", ["tensorwise", "delayed", "mxfp8"])
@pytest.mark.parametrize("accum", [1, 2])
def test_fp8_steps_are_not_skipped_for_the_other_branch(tmp_path, form, recipe, accum):
    data = batch(False)
    np.savez(tmp_path / "d.npz", **{k: np.concatenate([v] * 2) for k, v in data.items()})
    curves = []
    for name, body in [("if", FORMS[form]), ("plain", TAKEN[form, False])]:
        out = tmp_path / name
        done = run("train", write_model(tmp_path / f"{name}.onnx", body, "log"), "--data", tmp_path / "d.npz", "--loss",
                   "mse", "--recipe", recipe, "--steps", 3, "--grad-accum", accum, "--optimizer", "sgd", "--lr", 0.1,
                   "--no-shuffle", "--out", out, "--json")
        assert json.loads(done.stdout)["skipped_steps"] == 0, done.stderr
        curves.append(list(losses(out).values()))
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("recipe", ["off", "delayed"])
def test_written_step_in_stock_onnxruntime(tmp_path, form, taken, recipe):
    model = write_model(tmp_path / "m.onnx", FORMS[form], "log")
    np.savez(tmp_path / "d.npz", **batch(taken))
    flags = ["--loss", "mse", "--recipe", recipe, "--optimizer", "sgd", "--lr", 0.01]
    run("train", model, "--data", tmp_path / "d.npz", *flags, "--steps", 3, "--batch-size", 4, "--no-shuffle", "--out",
        tmp_path / "run")
    run("rewrite", model, "-o", tmp_path / "step.onnx", *flags)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(tmp_path / "step.onnx"), options, providers=["CPUExecutionProvider"])
    inputs = {i.name for i in session.get_inputs()}
    feeds = {k: v for k, v in batch(taken).items() if k in inputs}
    names = [o.name for o in session.get_outputs()]
    binding = onnx.load(tmp_path / "step.onnx").training_info[0].update_binding
    ours = []
    for _ in range(3):
        got = dict(zip(names, session.run(None, feeds)))
        ours.append(float(got["loss"]))
        feeds |= {b.key: got[b.value] for b in binding}
    assert all(np.isfinite(v).all() for v in feeds.values())
    np.testing.assert_allclose(ours, [losses(tmp_path / "run")[i] for i in (1, 2, 3)], rtol=1e-5)


def test_statistics_of_the_other_branch_stay(tmp_path):
    body = """
    y = If(c) <then_branch = yes () => (float[4,3] p) {{
                 b, m2, s2 = BatchNormalization <training_mode = 1> (h, scale, bias, mean, var) p = MatMul(b, u) }},
               else_branch = no () => (float[4,3] q) {{ q = MatMul(h, v) }}>"""
    model = onnx.load(write_model(tmp_path / "m.onnx", body, "log"))
    more = {"scale": np.ones(3), "bias": np.zeros(3), "mean": np.full(3, 0.25), "var": np.full(3, 2.0)}
    model.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), k) for k, v in more.items())
    onnx.save(model, tmp_path / "m.onnx")
    for taken in [True, False]:
        np.savez(tmp_path / "d.npz", **batch(taken))
        out = tmp_path / f"run{taken}"
        run("train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", 4, "--steps", 1,
            "--out", out)
        state = load_file(next((out / "checkpoints").glob("*/state.safetensors")))
        for name in ["mean", "var"]:
            assert (state[name] == more[name].astype(np.float32)).all() == (not taken)
