# SPDX-License-Identifier: Apache-2.0
"""Rows whose number data decide, as exporters write them: results as in stock onnxruntime, gradients as in a model that
keeps all rows and weights them with a mask."""
import numpy as np
import onnx
import pytest
from onnx import parser
from program import run
from safetensors.numpy import load_file
from stock import stock_session

HEAD = '<ir_version: 10, opset_import: ["": 20]> g (float[6, 4] x, bool[6] m) => (float[2] y, float loss) '
DENSE = "p = MatMul(x, w) a = Add(p, b) h = Tanh(a) f0 = Cast<to = 1>(m) f = Unsqueeze(f0, one) "
PICK = "p = MatMul(x, w) a = Add(p, b) n = NonZero(m) at = Transpose<perm = [1, 0]>(n) r = GatherND(a, at) "
ELEMENTS = "um = Unsqueeze(m, one) sh = Shape(a) em = Expand(um, sh) n2 = NonZero(em) at2 = Transpose<perm = [1, 0]>(n2) "

# Each pair: as exporters write it, and with all rows.
PAIRS = {
    "sum": (PICK + "t = Tanh(r) y = ReduceSum<keepdims = 0>(t, zero)",
            DENSE + "t = Mul(h, f) y = ReduceSum<keepdims = 0>(t, zero)"),
    "mean": (PICK + "t = Tanh(r) y = ReduceMean<keepdims = 0>(t, zero)",
             DENSE + "t = Mul(h, f) s = ReduceSum<keepdims = 0>(t, zero) c = ReduceSum<keepdims = 0>(f, zero) y = Div(s, c)"),
    "max": (PICK + "t = Tanh(r) y = ReduceMax<keepdims = 0>(t, zero)",
            DENSE + "um = Unsqueeze(m, one) t = Where(um, h, low) y = ReduceMax<keepdims = 0>(t, zero)"),
    "compress": ("p = MatMul(x, w) a = Add(p, b) r = Compress<axis = 0>(a, m) t = Tanh(r) y = ReduceSum<keepdims = 0>(t, zero)",
                 DENSE + "t = Mul(h, f) y = ReduceSum<keepdims = 0>(t, zero)"),
    # What the chosen rows become is added to all rows.
    "index_add": (PICK + "t = Tanh(r) z = ScatterND<reduction = \"add\">(a, at, t) q = Mul(z, z) "
                  "y = ReduceSum<keepdims = 0>(q, zero)",
                  DENSE + "t = Mul(h, f) z = Add(a, t) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
    "scatter_elements": (PICK + "t = Tanh(r) s0 = Shape(t) at2 = Expand(at, s0) "
                         "z = ScatterElements<axis = 0, reduction = \"add\">(a, at2, t) q = Mul(z, z) "
                         "y = ReduceSum<keepdims = 0>(q, zero)",
                         DENSE + "t = Mul(h, f) z = Add(a, t) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
    "replaced": (PICK + "t = Tanh(r) z = ScatterND(a, at, t) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)",
                 DENSE + "um = Unsqueeze(m, one) z = Where(um, h, a) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
    # masked_scatter: the first rows of another tensor go where the mask is set.
    "masked_scatter": (
        "p = MatMul(x, w) a = Add(p, b) um = Unsqueeze(m, one) sh = Shape(a) em = Expand(um, sh) n = NonZero(em) "
        "at = Transpose<perm = [1, 0]>(n) src = Tanh(a) flat = Reshape(src, minus) cs = Shape(at) c = Gather(cs, zero) "
        "cut = Slice(flat, zero, c, zero) z = ScatterND(a, at, cut) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)",
        DENSE + "k0 = Cast<to = 7>(m) k1 = CumSum(k0, axis) k2 = Sub(k1, one) k = Max(k2, zero) src = Gather(h, k) "
        "um = Unsqueeze(m, one) z = Where(um, src, a) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
    # The chosen rows as a list of elements, which another NonZero counts.
    "elements": (
        PICK + "t = Tanh(r) flat = Reshape(t, minus) " + ELEMENTS + "cs = Shape(at2) c = Gather(cs, zero) "
        "cut = Slice(flat, zero, c, zero) z = ScatterND(a, at2, cut) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)",
        DENSE + "um = Unsqueeze(m, one) z = Where(um, h, a) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
    # One row for all that the mask names, repeated as often as a sum tells.
    "counted": (
        "p = MatMul(x, w) a = Add(p, b) " + ELEMENTS + "k0 = Cast<to = 7>(m) k = ReduceSum(k0) s = Concat<axis = 0>(k, two) "
        "e = Expand(b, s) flat = Reshape(e, minus) z = ScatterND(a, at2, flat) q = Mul(z, z) "
        "y = ReduceSum<keepdims = 0>(q, zero)",
        DENSE + "um = Unsqueeze(m, one) z = Where(um, b, a) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
    "unique": (
        "ids = Cast<to = 7>(m) u, first, back = Unique(ids) e = Gather(w, u) t = Tanh(e) g = Gather(t, back) p = MatMul(x, w) "
        "a = Add(p, b) z = Mul(g, a) y = ReduceSum<keepdims = 0>(z, zero)",
        DENSE + "ids = Cast<to = 7>(m) t = Tanh(w) g = Gather(t, ids) z = Mul(g, a) y = ReduceSum<keepdims = 0>(z, zero)"),
    "loss": (
        PICK + "l0 = ArgMax<axis = 1, keepdims = 0>(x) l1 = Mod(l0, two) n2 = NonZero(m) at2 = Transpose<perm = [1, 0]>(n2) "
        "l = GatherND(l1, at2) y0 = SoftmaxCrossEntropyLoss(r, l) y = Expand(y0, two)",
        DENSE + "l0 = ArgMax<axis = 1, keepdims = 0>(x) l1 = Mod(l0, two) l = Where(m, l1, minus) "
        "y0 = SoftmaxCrossEntropyLoss<ignore_index = -1>(a, l) y = Expand(y0, two)"),
    # Two experts; each row goes to the one that the mask names.
    "experts": (
        "nm = Not(m) n1 = NonZero(m) i1 = Squeeze(n1, zero) g1 = Gather<axis = 0>(x, i1) e1 = Gemm(g1, w, b) t1 = Tanh(e1) "
        "n2 = NonZero(nm) i2 = Squeeze(n2, zero) g2 = Gather<axis = 0>(x, i2) e2 = Gemm(g2, w2, b) s2 = Sigmoid(e2) "
        "t2 = Mul(e2, s2) sh = Shape(e1) zeros0 = ConstantOfShape(all) u1 = Unsqueeze(i1, one) u2 = Unsqueeze(i2, one) "
        "z1 = ScatterND<reduction = \"add\">(zeros0, u1, t1) z = ScatterND<reduction = \"add\">(z1, u2, t2) "
        "q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)",
        DENSE + "p2 = MatMul(x, w2) e2 = Add(p2, b) s2 = Sigmoid(e2) t2 = Mul(e2, s2) um = Unsqueeze(m, one) "
        "z = Where(um, h, t2) q = Mul(z, z) y = ReduceSum<keepdims = 0>(q, zero)"),
}
MORE = "<float[4, 2] w = {0.5, -1, 2, 0.25, -0.75, 1, 1.5, -0.5}, float[4, 2] w2 = {1, 0.5, -1, 0.75, 0.25, -2, 0.5, 1}, " \
       "float[2] b = {0.3, -0.2}, int64[1] one = {1}, int64[1] zero = {0}, int64[1] minus = {-1}, int64[1] two = {2}, int64[2] all = {6, 2}, " \
       "int64 axis = {0}, float low = {-3.4e38}> "
MASKS = {"some": [0, 1, 1, 0, 0, 1], "one": [0, 0, 0, 0, 1, 0], "all": [1] * 6, "none": [0] * 6}


def write(body, path):
    text = HEAD + MORE + "{ " + body + " squares = Mul(y, y) loss = ReduceSum<keepdims = 0>(squares) }"
    onnx.save(parser.parse_model(text), path)
    return path


def feeds(mask, path):
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    np.savez(path, x=x, m=np.array(MASKS[mask], bool))
    return {"x": x, "m": np.array(MASKS[mask], bool)}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", PAIRS)
def test_results_are_those_of_onnxruntime(name, mask, tmp_path):
    if mask == "none" and name in ("mean", "max", "loss"):
        return  # 0 rows have no mean and no largest one
    model = write(PAIRS[name][0], tmp_path / "m.onnx")
    arrays = feeds(mask, tmp_path / "d.npz")
    run("run", model, "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    expected, _ = stock_session(model).run(None, arrays)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected, rtol=1e-5, atol=1e-6)


def gradients(model, mask, folder):
    feeds(mask, folder / "d.npz")
    run("grad", model, "--data", folder / "d.npz", "--loss", "output:loss", "--batch-size", 6,
        "-o", folder / "g.safetensors")
    return load_file(folder / "g.safetensors")


@pytest.mark.parametrize("mask", ["some", "one", "all"])
@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_those_of_a_mask(name, mask, tmp_path):
    routed, dense = (gradients(write(body, tmp_path / "m.onnx"), mask, tmp_path) for body in PAIRS[name])
    assert routed.keys() == dense.keys() and routed
    for key, expected in dense.items():
        np.testing.assert_allclose(routed[key], expected, rtol=1e-4, atol=1e-6, err_msg=key)


def test_more_rows_than_there_are(tmp_path):
    """masked_scatter of fewer numbers than the mask has places: stock onnxruntime fails too."""
    body = ("p = MatMul(x, w) a = Add(p, b) " + ELEMENTS + "cs = Shape(at2) c = Gather(cs, zero) cut = Slice(b, zero, c, zero) "
            "z = ScatterND(a, at2, cut) y = ReduceSum<keepdims = 0>(z, zero)")
    model = write(body, tmp_path / "m.onnx")
    feeds("some", tmp_path / "d.npz")
    done = run("run", model, "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz", code=1)
    assert "expected indices in -2…1, got 2" in done.stderr
    arrays = feeds("one", tmp_path / "d.npz")
    run("run", model, "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    expected, _ = stock_session(model).run(None, arrays)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected, rtol=1e-5)
