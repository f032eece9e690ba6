# SPDX-License-Identifier: Apache-2.0
"""The FP8 ops' bodies in onnx.reference and stock onnxruntime, compared with our
kernels: bytes and scales bit for bit, products within the bound of an fp32 sum."""
import json
import os
import subprocess

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator
from stock import stock_session

BIN = os.environ["ONNX_FP8_BIN"]
DOMAIN = "onnx_fp8"
E4M3, E5M2 = 17, 19
Q_MAX = {E4M3: 448.0, E5M2: 57344.0}
STORAGE = {E4M3: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2}


@pytest.fixture(scope="module")
def bodies():
    text = subprocess.run([BIN, "ops", "--json"], check=True, capture_output=True).stdout
    return {op["name"]: op for op in json.loads(text)}


def function(op, opset):
    header = f'<opset_import: ["":{opset}, "{DOMAIN}":1], domain: "{DOMAIN}">'
    attributes = ", ".join(a["name"] for a in op["attributes"])
    return parser.parse_function(f"{header} {op['name']} {f'<{attributes}>' if attributes else ''} {op['body']}")


class Runner:
    """One graph, run by onnx.reference and onnxruntime (both through the bodies)
    and by our program (with its kernels: its file has no bodies)."""

    def __init__(self, tmp_path, bodies, graph, ops, opset=19):
        self.path = tmp_path
        ir_version = 9 if opset < 24 else 12
        header = f'<ir_version: {ir_version}, opset_import: ["":{opset}, "{DOMAIN}":1]>'
        bare = parser.parse_model(f"{header} {graph}")
        onnx.save(bare, tmp_path / "model.onnx")
        full = onnx.ModelProto()
        full.CopyFrom(bare)
        full.functions.extend(function(bodies[op], opset) for op in ops)
        onnx.checker.check_model(full)
        self.names = [o.name for o in full.graph.output]
        self.reference = ReferenceEvaluator(full)
        self.stock = stock_session(full)

    def run(self, **feeds):
        with np.errstate(all="ignore"):
            reference = self.reference.run(None, feeds)
        stock = self.stock.run(None, feeds)
        np.savez(self.path / "in.npz", **feeds)
        files = ["--data", self.path / "in.npz", "-o", self.path / "out.npz"]
        subprocess.run([BIN, "run", self.path / "model.onnx", *files], check=True)
        with np.load(self.path / "out.npz") as ours:
            ours = [ours[name] for name in self.names]
        return [dict(zip(self.names, map(np.asarray, r))) for r in (reference, stock, ours)]


def same_bits(a, b):
    """Equal bit for bit, except that any NaN equals any NaN."""
    nan = np.isnan(a) & np.isnan(b)
    return a.shape == b.shape and a.dtype == b.dtype and np.all((a.view(np.int32) == b.view(np.int32)) | nan)


def assert_all_same(results):
    reference, stock, ours = results
    for name in reference:
        assert same_bits(reference[name], stock[name]), f"engines differ in {name}"
        assert same_bits(reference[name], ours[name]), f"kernel differs in {name}"
    return ours


def special_values(x):
    """x with values that round badly: zeros, subnormals, halves between two codes."""
    flat = x.reshape(-1)
    odd = [0.0, -0.0, 1e-40, -1e-9, 1.0625, 1.1875, -17.0, 2.0**-9, 2.0**-10, 3 * 2.0**-10]
    n = min(len(odd), flat.size // 2)
    flat[:n] = odd[:n]
    return x


INPUTS = {
    "normal": lambda x: x,
    "special": special_values,
    "tiny": lambda x: x * np.float32(1e-41),
    "below_eps": lambda x: x * np.float32(1e-14),
    "huge": lambda x: np.clip(x, -5, 5) * np.float32(6e37),
    "zeros": lambda x: x * np.float32(0),
    "nan": lambda x: np.where(np.arange(x.size).reshape(x.shape) % 5 == 0, np.float32(np.nan), x),
    "inf": lambda x: np.where(np.arange(x.size).reshape(x.shape) % 7 == 0, np.float32(-np.inf), x),
    "only_nan": lambda x: x * np.float32(np.nan),
}
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 17), (0, 4), (33, 65), (1, 1, 1, 131)]


def make(shape, kind):
    x = np.random.default_rng(len(kind)).standard_normal(shape).astype(np.float32) * np.float32(3)
    return np.asarray(INPUTS[kind](np.asarray(x)), np.float32)


def dims(shape):
    return f"float[{','.join(map(str, shape))}]" if shape else "float"


def quantized(x, qs, to):
    """ml_dtypes after clipping, as float."""
    with np.errstate(all="ignore"):
        return np.clip(x * np.float32(qs), -Q_MAX[to], Q_MAX[to]).astype(STORAGE[to]).astype(np.float32)


def dynamic_factor(x, to):
    finite = np.where(np.isfinite(x), np.abs(x), np.float32(0))
    a = finite.max() if x.size else np.float32(0)
    amax = a if np.isfinite(x).all() else np.float32(np.inf)
    return np.float32(Q_MAX[to] / np.float64(max(a, np.float32(1e-12)))), np.float32(amax)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("to", [E4M3, E5M2])
def test_quantize_tensor(tmp_path, bodies, to, shape):
    graph = f"""g ({dims(shape)} x) => ({dims(shape)} y, float scale, float amax) {{
      q, scale, amax = {DOMAIN}.QuantizeTensor<to = {to}, q_max = {Q_MAX[to]}>(x)
      y = Cast<to = 1>(q) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeTensor"])
    for kind in INPUTS:
        x = make(shape, kind)
        ours = assert_all_same(runner.run(x=x))
        qs, amax = dynamic_factor(x, to)
        assert same_bits(ours["y"], quantized(x, qs, to)), kind
        assert ours["scale"] == np.float32(1) / qs and ours["amax"] == amax, kind


@pytest.mark.parametrize("to", [E4M3, E5M2])
def test_quantize_with(tmp_path, bodies, to):
    shape = (5, 13)
    graph = f"""g ({dims(shape)} x, float scale_in) => ({dims(shape)} y, float scale, float amax) {{
      q, scale, amax = {DOMAIN}.QuantizeWith<to = {to}, q_max = {Q_MAX[to]}>(x, scale_in)
      y = Cast<to = 1>(q) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeWith"])
    for kind in INPUTS:
        x = make(shape, kind)
        own, amax = dynamic_factor(x, to)
        for scale in np.array([0, 0.037, 1 / 3, 2.0**-126, 3e-4, 1e30], np.float32):
            ours = assert_all_same(runner.run(x=x, scale_in=np.asarray(scale)))
            qs = own if scale == 0 else np.float32(1) / scale
            assert same_bits(ours["y"], quantized(x, qs, to)), (kind, scale)
            assert ours["scale"] == (np.float32(1) / own if scale == 0 else scale)
            assert ours["amax"] == amax


@pytest.mark.parametrize("op,to", [("QuantizeTensorTranspose", E4M3), ("QuantizeWithTranspose", E5M2), ("GeluQuantize", E4M3)])
def test_transposed_codes(tmp_path, bodies, op, to):
    """Before opset 21 ONNX moves no FP8 values: the bodies turn floats."""
    given, fused = op != "QuantizeTensorTranspose", op == "GeluQuantize"
    attributes = f"to = {to}, q_max = {Q_MAX[to]}" + (", round_to = 1" if fused else "")
    graph = f"""g (float[2,3,17] x{", float scale_in" if given else ""}) => (float[2,3,17] y, float[17,6] t) {{
      {"value, " if fused else ""}q, scale, amax, q_transposed{"" if fused else ", sums"}
        = {DOMAIN}.{op}<{attributes}>(x{", scale_in" if given else ""})
      y = Cast<to = 1>(q)
      t = Cast<to = 1>(q_transposed) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeWithTranspose", op] if fused else [op])
    for kind in ["normal", "special", "nan"]:
        feeds = {"x": make((2, 3, 17), kind)}
        if given:
            feeds["scale_in"] = np.asarray(0.037, np.float32)
        for results in runner.run(**feeds):
            assert same_bits(results["t"], results["y"].reshape(6, 17).T), kind
        if not fused:
            qs = np.float32(1) / np.float32(0.037) if given else dynamic_factor(feeds["x"], to)[0]
            assert same_bits(results["y"], quantized(feeds["x"], qs, to)), kind


def updated(amax, history, scale, q_max, most_recent, margin):
    """TransformerEngine's kernel_bulk, slot by slot, with real = q * scale."""
    history, scale = history.copy(), scale.copy()
    h = len(history)
    for i, last in enumerate(amax):
        if last == 0 or not np.isfinite(last):
            continue
        window = [*history[1:, i], last]
        history[:, i] = [0, *window[1:]]
        m = last if most_recent else max(window)
        assert len(window) == h
        if not np.isfinite(m):
            continue
        with np.errstate(all="ignore"):
            exact = np.float32(1) / np.float32(np.float64(q_max[i]) / np.float64(m))
            scale[i] = max(exact * np.float32(2.0**margin), np.float32(2.0**-126))
    return history, scale


@pytest.mark.parametrize("h,n", [(1, 3), (2, 1), (5, 9), (16, 1), (3, 0)])
@pytest.mark.parametrize("most_recent", [0, 1])
@pytest.mark.parametrize("margin", [0.0, 2.0, -1.0])
def test_update_scale(tmp_path, bodies, h, n, most_recent, margin):
    graph = f"""g (float[{n}] amax, float[{h},{n}] history, float[{n}] scale, float[{n}] q_max, bool ok)
      => (float[{h},{n}] new_history, float[{n}] new_scale) {{
      new_history, new_scale = {DOMAIN}.UpdateScale<most_recent = {most_recent}, margin = {margin}>
        (amax, history, scale, q_max, ok) }}"""
    runner = Runner(tmp_path, bodies, graph, ["UpdateScale"])
    rng = np.random.default_rng(h * 10 + n)
    inf, nan = np.inf, np.nan
    for special in ([], [0, inf, nan, 1e-45, 1e-38, 3e38, 7]):
        amax = rng.exponential(size=n).astype(np.float32)
        amax[: len(special)] = special[:n]
        history = rng.exponential(size=(h, n)).astype(np.float32)
        history[:, n // 2 :] *= 0
        scale = rng.exponential(size=n).astype(np.float32)
        scale[n // 3 :] = 0
        q_max = rng.choice([448.0, 57344.0], n).astype(np.float32)
        for poison in (False, True):
            if poison:
                history[-1, :3] = [inf, nan, inf][:n]
            feeds = dict(amax=amax, history=history, scale=scale, q_max=q_max)
            ours = assert_all_same(runner.run(**feeds, ok=np.array(True)))
            new_history, new_scale = updated(**feeds, most_recent=most_recent, margin=margin)
            if not poison:  # max() of Python and NaN
                assert same_bits(ours["new_history"], new_history)
                assert same_bits(ours["new_scale"], new_scale)
            ours = assert_all_same(runner.run(**feeds, ok=np.array(False)))
            assert same_bits(ours["new_history"], history) and same_bits(ours["new_scale"], scale)


# Shapes of a and b, transA, transB. None is empty: onnx.reference can't flatten
# empty tensors.
PRODUCTS = [
    ((3, 5), (5, 7), 0, 0),
    ((3, 5), (7, 5), 0, 1),
    ((5, 3), (5, 7), 1, 0),
    ((5, 3), (7, 5), 1, 1),
    ((2, 3, 17), (17, 33), 0, 0),
    ((2, 3, 4, 17), (33, 17), 0, 1),
    ((2, 3, 17), (2, 3, 9), 1, 0),
    ((2, 2, 3, 17), (4, 3, 9), 1, 0),
    ((2, 3, 17), (9, 6), 1, 1),
    ((1, 1), (1, 1), 0, 0),
    ((65, 130), (130, 31), 0, 0),
]


@pytest.mark.parametrize("a,b,trans_a,trans_b", PRODUCTS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("a_to", [E4M3, E5M2])
def test_scaled_matmul(tmp_path, bodies, a, b, trans_a, trans_b, bias, a_to):
    n = int(np.prod(b[:-1])) if trans_b else b[-1]
    y = (a[-1], n) if trans_a else (*a[:-1], n)
    op, extra = ("ScaledMatMulBias", ", bias") if bias else ("ScaledMatMul", "")
    graph = f"""g ({dims(a)} a, {dims(b)} b, float[{n}] bias) => ({dims(y)} y, {dims(a)} fa, {dims(b)} fb, float sa, float sb) {{
      qa, sa, ma = {DOMAIN}.QuantizeTensor<to = {a_to}, q_max = {Q_MAX[a_to]}>(a)
      qb, sb, mb = {DOMAIN}.QuantizeTensor<to = {E4M3}, q_max = {Q_MAX[E4M3]}>(b)
      fa = Cast<to = 1>(qa)
      fb = Cast<to = 1>(qb)
      y = {DOMAIN}.{op}<transA = {trans_a}, transB = {trans_b}, role = "forward", fqn = "f.w">(qa, sa, qb, sb{extra}) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeTensor", op])
    feeds = dict(a=make(a, "normal"), b=make(b, "special"), bias=make((n,), "normal"))
    results = runner.run(**feeds)
    ours = results[2]
    x, w = (ours[k].astype(np.float64).reshape(int(np.prod(s[:-1])), s[-1]) for k, s in (("fa", a), ("fb", b)))
    x, w = x.T if trans_a else x, w.T if trans_b else w
    scale = np.float64(ours["sa"] * ours["sb"])
    z = feeds["bias"].astype(np.float64) if bias else np.zeros(n)
    exact = (x @ w * scale + z).reshape(y)
    # Higham, Accuracy and Stability of Numerical Algorithms, (3.1), + 3 roundings
    bound = (x.shape[1] + 3) * 2.0**-24 * (np.abs(x) @ np.abs(w) * scale + np.abs(z)).reshape(y)
    for result in results:
        assert result["y"].shape == y
        assert np.all(np.abs(result["y"] - exact) <= bound)
    for name in ("fa", "fb", "sa", "sb"):
        assert all(same_bits(r[name], ours[name]) for r in results)
