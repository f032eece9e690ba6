# SPDX-License-Identifier: Apache-2.0
"""The optimizer ops' bodies in onnx.reference and stock onnxruntime, compared with
our kernels bit for bit, in a step that counts and in one that is skipped."""
import numpy as np
import pytest
from test_quantize_bodies import DOMAIN, Runner, assert_all_same, bodies  # noqa: F401

ADAM = ["one_minus_beta1 = 0.1", "one_minus_beta2 = 0.001", "eps = 1e-8"]
SCALARS = {"step": "int64", "lr": "float", "grad_scale": "float", "ok": "bool"}
# name: moments, scalars, attributes
OPS = {
    "SGD": ([], ["lr", "grad_scale", "ok"], []),
    "SGDMomentum": (["b"], ["lr", "grad_scale", "ok"], ["momentum = 0.9", "nesterov = 0"]),
    "Adam": (["m", "v"], list(SCALARS), ADAM),
    "AdamW": (["m", "v"], list(SCALARS), ADAM),
}
CASES = [(op, attributes) for op, (_, _, attributes) in OPS.items()]
CASES.append(("SGDMomentum", ["momentum = 0.9", "nesterov = 1"]))


@pytest.mark.parametrize("shape", [(), (7,), (3, 33)], ids=str)
def test_update_amax(tmp_path, bodies, shape):  # noqa: F811
    kind = f"float[{','.join(map(str, shape))}]" if shape else "float"
    graph = f"""g ({kind} m, {kind} v, int64 step) => (float amax) {{
      amax = {DOMAIN}.UpdateAmax<{', '.join(ADAM)}>(m, v, step) }}"""
    runner = Runner(tmp_path, bodies, graph, ["UpdateAmax"])
    rng = np.random.default_rng(3)
    for special in (0, np.inf, np.nan):
        m = np.asarray(rng.standard_normal(shape), np.float32)
        v = np.asarray(np.abs(rng.standard_normal(shape)), np.float32)
        if special:
            m.reshape(-1)[0] = special
        amax = assert_all_same(runner.run(m=m, v=v, step=np.asarray(3)))["amax"]
        m, v = m.astype(np.float64), v.astype(np.float64)
        sizes = np.abs(m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.999**3)) + 1e-8))
        expected = np.nan_to_num(sizes, nan=np.inf, posinf=np.inf).max(initial=0)
        assert amax == expected or abs(amax / expected - 1) < 1e-5


@pytest.mark.parametrize("shape", [(), (7,), (3, 33), (0, 2)], ids=str)
@pytest.mark.parametrize("op,attributes", CASES, ids=lambda x: x if isinstance(x, str) else x[-1:])
def test_update(tmp_path, bodies, op, attributes, shape):  # noqa: F811
    moments, scalars, _ = OPS[op]
    kind = f"float[{','.join(map(str, shape))}]" if shape else "float"
    tensors = ["p", "g", *moments]
    inputs = [f"{kind} {t}" for t in tensors] + [f"{SCALARS[s]} {s}" for s in scalars]
    outputs = ["new_p", *(f"new_{m}" for m in moments)]
    settings = ", ".join(["weight_decay = 0.01", "lr_scale = 0.5", *attributes])
    graph = f"""g ({', '.join(inputs)}) => ({', '.join(f'{kind} {o}' for o in outputs)}) {{
      {', '.join(outputs)} = {DOMAIN}.{op}<{settings}>({', '.join(tensors + scalars)}) }}"""
    runner = Runner(tmp_path, bodies, graph, [op])
    rng = np.random.default_rng(len(op))
    values = {"step": np.int64(3), "lr": np.float32(0.1), "grad_scale": np.float32(0.75)}
    for ok in (True, False):
        feeds = {t: np.asarray(rng.standard_normal(shape), np.float32) for t in tensors}
        if "v" in feeds:
            feeds["v"] = np.asarray(np.abs(feeds["v"]))
        if not ok and shape:
            feeds["g"].reshape(-1)[:1] = np.nan
        feeds |= {s: np.asarray({**values, "ok": ok}[s]) for s in scalars}
        ours = assert_all_same(runner.run(**feeds))
        for new, old in zip(outputs, ["p", *moments]):
            same = np.array_equal(ours[new], feeds[old])
            assert same == (not ok or 0 in shape), new
