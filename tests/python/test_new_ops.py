# SPDX-License-Identifier: Apache-2.0
"""Operators of opset 26 and later, and ops that run by a body of ours: ONNX's own node cases through `onnx-fp8 run`.
Gradients of LinearAttention beside central differences of its text in float64."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_node_model_tests
from program import run
from safetensors.numpy import load_file

PREFIXES = ("bitcast", "bitshift", "causal_conv_with_state", "celu", "cumprod", "depthtospace", "det", "dft", "einsum",
            "linear_attention", "melweightmatrix", "mod_", "onehot", "range", "reversesequence", "spacetodepth", "stft",
            "swiglu")
CASES = {case.name: case for case in load_node_model_tests()
         if case.name.startswith(tuple("test_" + prefix for prefix in PREFIXES))}
# .npz has no bfloat16: tests/providers/onnx_node_cases.cc runs such cases.
CASES = {name: case for name, case in CASES.items()
         if all(np.asarray(array).dtype.kind in "biuf" for arrays in case.data_sets[0] for array in arrays)}


def test_there_are_cases():
    assert len(CASES) > 100


# Operands that decide sizes: the program wants them as constants, or as inputs of one integer.
SIZES = ("DFT", "Loop", "MelWeightMatrix", "OneHot", "Range", "STFT")


@pytest.mark.parametrize("name", CASES)
def test_node_case(name, tmp_path):
    case = CASES[name]
    graph = onnx.GraphProto()
    graph.CopyFrom(case.model.graph)
    (inputs, outputs), = case.data_sets
    feeds = {info.name: np.asarray(array) for info, array in zip(graph.input, inputs)}
    if any(node.op_type in SIZES for node in graph.node):
        for info in [info for info in graph.input if feeds[info.name].size == 1]:
            graph.initializer.append(numpy_helper.from_array(feeds.pop(info.name), info.name))
            graph.input.remove(info)
    model = helper.make_model(graph, opset_imports=case.model.opset_import, ir_version=case.model.ir_version)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **feeds, **({} if feeds else {"unused": np.zeros(1)}))
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as got:
        for info, expected in zip(graph.output, outputs):
            half = expected.dtype == np.float16
            np.testing.assert_allclose(got[info.name].astype(expected.dtype), expected, rtol=5e-3 if half else 1e-5,
                                       atol=2e-3 if half else 1e-6)


# ---- gradients

B, T, K, V, HEADS = 1, 37, 3, 2, 2  # more rows than a chunk has


def linear_attention(rule, q, k, v, decay, beta):
    """The operator's text: S decays, then takes up k_t and v_t; o_t reads it."""
    heads = q.shape[-1] // K
    split = lambda x, n: x.reshape(B, T, n, -1)
    q, k, v, decay = split(q, heads), split(k, HEADS), split(v, HEADS), split(decay, HEADS)
    beta = beta.reshape(B, T, -1, 1)
    state = np.zeros((B, HEADS, K, V))
    rows = []
    for t in range(T):
        if "gated" in rule:
            state = state * np.exp(decay[:, t])[..., None]
        new = v[:, t]
        if "delta" in rule:
            new = beta[:, t] * (new - np.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + np.einsum("bhk,bhv->bhkv", k[:, t], new)
        wide = np.repeat(state, heads // HEADS, axis=1)
        rows.append(np.einsum("bhkv,bhk->bhv", wide, q[:, t]) / np.sqrt(K))
    return np.stack(rows, 1).reshape(B, T, -1)


# A decay of each key or of each head; a beta of each head or of all.
@pytest.mark.parametrize("rule, q_heads, decays, betas", [
    ("linear", HEADS, 0, 0), ("linear", 2 * HEADS, 0, 0), ("gated", HEADS, HEADS * K, 0), ("gated", 2 * HEADS, HEADS, 0),
    ("delta", HEADS, 0, HEADS), ("gated_delta", 2 * HEADS, HEADS * K, HEADS), ("gated_delta", HEADS, HEADS, 1)])
def test_linear_attention_trains(rule, q_heads, decays, betas, tmp_path):
    rng = np.random.default_rng(0)
    sizes = {"q": q_heads * K, "k": HEADS * K, "v": HEADS * V, "decay": decays or HEADS, "beta": betas or HEADS}
    arrays = {name: rng.normal(size=(B, T, size)) * 0.4 for name, size in sizes.items()}
    weights = rng.normal(size=(B, T, q_heads * V))
    used = ["q", "k", "v"] + ["decay"] * ("gated" in rule) + ["beta"] * ("delta" in rule)
    names = ["q", "k", "v", "", "decay" if "decay" in used else "", "beta" if "beta" in used else ""]
    nodes = [helper.make_node("LinearAttention", names, ["o", "state"], "attention", update_rule=rule, q_num_heads=q_heads,
                              kv_num_heads=HEADS),
             helper.make_node("Mul", ["o", "weights"], ["terms"], "terms"),
             helper.make_node("ReduceSum", ["terms"], ["loss"], "sum", keepdims=0)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("weights", TensorProto.FLOAT, [B, T, q_heads * V])],
                              [value("loss", TensorProto.FLOAT, [])],
                              [numpy_helper.from_array(arrays[name].astype(np.float32), name) for name in used])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=13)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", weights=weights.astype(np.float32))
    run("grad", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "output:loss", "--batch-size", B,
        "--train", ",".join(used), "-o", tmp_path / "g.safetensors")
    got = load_file(tmp_path / "g.safetensors")

    def loss():
        return (linear_attention(rule, **arrays) * weights).sum()

    for name in used:
        expected = np.zeros_like(arrays[name])
        for i in np.ndindex(expected.shape):
            kept = arrays[name][i]
            sides = []
            for step in (1e-5, -1e-5):
                arrays[name][i] = kept + step
                sides.append(loss())
            arrays[name][i] = kept
            expected[i] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(got["grad." + name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
