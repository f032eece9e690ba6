# SPDX-License-Identifier: Apache-2.0
"""The gradient ops' bodies in onnx.reference and stock onnxruntime, compared
with their formulas in float64."""
import json
import math
import os
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator
from stock import stock_session

DOMAIN = "onnx_fp8"
OPSET = 19
# Single precision: a few roundings of sums of up to some thousand elements.
TOLERANCE = 64 * np.finfo(np.float32).eps


@pytest.fixture(scope="module")
def bodies():
    command = [os.environ["ONNX_FP8_BIN"], "ops", "--json"]
    text = subprocess.run(command, check=True, capture_output=True).stdout
    return {op["name"]: op for op in json.loads(text)}


def function_of(op):
    header = f'<opset_import: ["":{OPSET}, "{DOMAIN}":1], domain: "{DOMAIN}">'
    attributes = f"<{', '.join(a['name'] for a in op['attributes'])}>" if op["attributes"] else ""
    return parser.parse_function(f"{header} {op['name']} {attributes} {op['body']}")


def functions_of(bodies, name):
    """The function of an op, behind the functions that it calls."""
    called = re.findall(rf"{DOMAIN}\.(\w+)", bodies[name]["body"])
    return [f for other in called for f in functions_of(bodies, other)] + [function_of(bodies[name])]


def sessions(bodies, name, inputs, outputs, attributes):
    """onnx.reference and onnxruntime for one node, run by its body."""
    op, functions = bodies[name], functions_of(bodies, name)
    function = functions[-1]
    names = list(function.input), list(function.output)
    node = helper.make_node(op["name"], *names, domain=DOMAIN, **attributes)
    types = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, t, x.shape) for n, t, x in zip(names[0], types, inputs)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, y.shape) for n, y in zip(names[1], outputs)])
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=9)
    onnx.checker.check_model(model)
    stock = stock_session(model)
    return names[0], [ReferenceEvaluator(model), stock]


def check(bodies, name, inputs, expected, **attributes):
    """Compares all results of the body, relative to the largest element of each."""
    names, engines = sessions(bodies, name, inputs, expected, attributes)
    feeds = dict(zip(names, inputs))
    for engine in engines:
        with np.errstate(all="ignore"):
            results = engine.run(None, feeds)
        for got, want in zip(results, expected, strict=True):
            got = np.asarray(got)
            assert got.shape == want.shape, type(engine)
            assert got.dtype == np.float32
            bound = TOLERANCE * max(1, np.abs(want).max(initial=0))
            np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=str(type(engine)))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def wide(*arrays):
    return [a.astype(np.float64) for a in arrays]


@pytest.mark.parametrize("shape, axis", [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -2), ((1,), 0), ((0, 3), 1), ((4, 1000), -1)])
def test_softmax_grad(bodies, shape, axis):
    dy, y = normal(*shape), np.abs(normal(*shape, seed=1))
    dy64, y64 = wide(dy, y)
    dx = y64 * (dy64 - (dy64 * y64).sum(axis, keepdims=True))
    check(bodies, "SoftmaxGrad", [dy, y], [dx], axis=axis)


@pytest.mark.parametrize("shape, axis", [((3, 5), 1), ((3, 5), -1), ((2, 3, 4), 1), ((2, 3), 0), ((2, 3, 4), -2), ((7, 33, 65), 2)])
def test_layer_norm_grad(bodies, shape, axis):
    dy, x, scale = normal(*shape), normal(*shape, seed=1), normal(*shape[axis:], seed=2)
    first = axis % len(shape)
    axes, lead = tuple(range(first, len(shape))), tuple(range(first))
    mean = x.mean(axes, keepdims=True)
    inv = 1 / np.sqrt(x.var(axes, keepdims=True) + np.float32(1e-5))
    dy64, x64, s64, m64, i64 = wide(dy, x, scale, mean, inv)
    h, dh = (x64 - m64) * i64, dy64 * s64
    dx = i64 * (dh - dh.mean(axes, keepdims=True) - h * (dh * h).mean(axes, keepdims=True))
    check(bodies, "LayerNormGrad", [dy, x, scale, mean, inv], [dx, (dy64 * h).sum(lead), dy64.sum(lead)], axis=axis)
    dsum = normal(*shape, seed=3)
    check(bodies, "AddLayerNormGrad", [dsum, dy, x, scale, mean, inv],
          [dx + wide(dsum)[0], (dy64 * h).sum(lead), dy64.sum(lead)], axis=axis)


@pytest.mark.parametrize("shape, axis", [((3, 5), 1), ((3, 5), -1), ((2, 3, 4), 1), ((2, 3), 0), ((7, 33, 65), 2)])
def test_rms_norm_grad(bodies, shape, axis):
    dy, x, scale = normal(*shape), normal(*shape, seed=1), normal(*shape[axis:], seed=2)
    first, epsilon = axis % len(shape), 1e-3
    axes, lead = tuple(range(first, len(shape))), tuple(range(first))
    dy64, x64, s64 = wide(dy, x, scale)
    inv = 1 / np.sqrt((x64**2).mean(axes, keepdims=True) + epsilon)
    h, dh = x64 * inv, dy64 * s64
    dx = inv * (dh - h * (dh * h).mean(axes, keepdims=True))
    check(bodies, "RMSNormGrad", [dy, x, scale], [dx, (dy64 * h).sum(lead)], axis=axis, epsilon=epsilon)
    dsum = normal(*shape, seed=3)
    check(bodies, "AddRMSNormGrad", [dsum, dy, x, scale], [dx + wide(dsum)[0], (dy64 * h).sum(lead)],
          axis=axis, epsilon=epsilon)


def grid():
    """Numbers from far in one tail to far in the other, and 0."""
    x = np.concatenate([np.linspace(-12, 12, 193), [0.0, -100.0, 100.0]]).astype(np.float32)
    return normal(x.size), x


def test_gelu_grad(bodies):
    dy, x = grid()
    dy64, x64 = wide(dy, x)
    cdf = 0.5 * (1 + np.vectorize(math.erf)(x64 / math.sqrt(2)))
    pdf = np.exp(-x64**2 / 2) / math.sqrt(2 * math.pi)
    check(bodies, "GeluGrad", [dy, x], [dy64 * (cdf + x64 * pdf)])


def test_gelu_tanh_grad(bodies):
    dy, x = grid()
    dy64, x64 = wide(dy, x)
    c, k = math.sqrt(2 / math.pi), 0.044715
    t = np.tanh(c * (x64 + k * x64**3))
    slope = 0.5 * (1 + t) + 0.5 * x64 * (1 - t**2) * c * (1 + 3 * k * x64**2)
    check(bodies, "GeluTanhGrad", [dy, x], [dy64 * slope])


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("shape, axis, places", [
    ((5, 3), 0, (4,)), ((5, 3), 0, (2, 3)), ((2, 5, 3), 1, (2, 2)), ((2, 3, 5), -1, (3,)), ((5,), 0, ()), ((5, 3), 0, (0,)), ((3, 1, 4), 1, (6,))])
def test_gather_grad(bodies, shape, axis, places, dtype):
    size = shape[axis]
    indices = np.random.default_rng(3).integers(-size, size, places).astype(dtype)
    first = axis % len(shape)
    dy = normal(*shape[:first], *places, *shape[first + 1:])
    dx = np.zeros(shape)
    flat = dy.astype(np.float64).reshape(*shape[:first], -1 if indices.size else 0, *shape[first + 1:])
    for j, i in enumerate(indices.reshape(-1)):
        where = (slice(None),) * first
        dx[(*where, i)] += flat[(*where, j)]
    check(bodies, "GatherGrad", [dy, indices], [dx], axis=axis, shape=list(shape))


def test_gather_grad_repeats_itself(bodies):
    """Many rows are added to few: an engine that races gives different sums."""
    dy = normal(20000, 8)
    indices = np.random.default_rng(4).integers(0, 7, 20000)
    names, engines = sessions(bodies, "GatherGrad", [dy, indices], [np.zeros((7, 8))], dict(axis=0, shape=[7, 8]))
    feeds = dict(zip(names, [dy, indices]))
    first = engines[1].run(None, feeds)[0]
    for _ in range(20):
        np.testing.assert_array_equal(engines[1].run(None, feeds)[0], first)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("shape, ignored, share", [
    ((6, 5), -100, 0.3), ((6, 5), -100, 0), ((6, 5), -100, 1), ((6, 5), 2, 0.3), ((4, 200), -100, 0.5), ((2, 5, 3, 2), -100, 0.3), ((3, 1), -1, 0.3), ((0, 4), -100, 0)])
def test_softmax_cross_entropy_grad(bodies, shape, ignored, share, dtype):
    """200 classes: -100 would be a class if it wrapped."""
    random = np.random.default_rng(5)
    x = normal(*shape).astype(np.float64)
    log_prob = (x - np.log(np.exp(x).sum(1, keepdims=True))).astype(np.float32)
    labels = random.integers(0, shape[1], (shape[0], *shape[2:])).astype(dtype)
    labels[random.random(labels.shape) < share] = ignored
    valid = labels != ignored
    hot = (np.expand_dims(labels, 1) == np.arange(shape[1]).reshape(1, -1, *[1] * (len(shape) - 2)))
    dscores = (np.exp(log_prob.astype(np.float64)) - hot) * np.expand_dims(valid, 1) * 0.7 / max(valid.sum(), 1)
    check(bodies, "SoftmaxCrossEntropyGrad", [np.array(0.7, np.float32), log_prob, labels], [dscores], ignore_index=ignored)


@pytest.mark.parametrize("shape, ignored, share", [((6, 5), -100, 0.3), ((6, 5), -100, 0), ((6, 5), 2, 0.3), ((4, 200), -100, 0.5), ((3, 1), -1, 0.3)])
def test_cross_entropy(bodies, shape, ignored, share):
    random = np.random.default_rng(5)
    scores = normal(*shape)
    labels = random.integers(0, shape[1], shape[0])
    labels[1:][random.random(shape[0] - 1) < share] = ignored
    labels[0] = shape[1] - 1
    valid = labels != ignored
    x = scores.astype(np.float64)
    lse = np.log(np.exp(x).sum(1))
    picked = x[np.arange(shape[0]), np.where(valid, labels, 0)]
    loss = ((lse - picked) * valid).sum() / valid.sum()
    check(bodies, "CrossEntropy", [scores, labels], [np.asarray(loss), lse], ignore_index=ignored)
    hot = labels[:, None] == np.arange(shape[1])
    lse = lse.astype(np.float32)
    dscores = (np.exp(x - lse[:, None].astype(np.float64)) - hot) * valid[:, None] * 0.7 / valid.sum()
    dloss = np.array(0.7, np.float32)
    check(bodies, "CrossEntropyGrad", [dloss, scores, lse, labels], [dscores], ignore_index=ignored)
    check(bodies, "CrossEntropyWithGrad", [dloss, scores, labels], [np.asarray(loss), dscores], ignore_index=ignored)


def test_detach(bodies):
    x = normal(3, 4)
    check(bodies, "Detach", [x], [x])


def test_silu(bodies):
    x, dy = normal(3, 50), normal(3, 50, seed=1)
    x64, dy64 = wide(x, dy)
    s = 1 / (1 + np.exp(-x64))
    check(bodies, "Silu", [x], [x64 * s])
    check(bodies, "SiluGrad", [dy, x], [dy64 * s * (1 + x64 * (1 - s))])


@pytest.mark.parametrize("shape", [(7,), (3, 50), (2, 3, 5), (0, 4)])
def test_activations_with_bias(bodies, shape):
    dy, x = normal(*shape), normal(*shape, seed=1)
    dy64, x64 = wide(dy, x)
    cdf = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x64 / math.sqrt(2)))
    pdf = np.exp(-x64**2 / 2) / math.sqrt(2 * math.pi)
    t = np.tanh(math.sqrt(2 / math.pi) * (x64 + 0.044715 * x64**3))
    dt = (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x64**2)
    s = 1 / (1 + np.exp(-x64))
    slopes = {"Gelu": cdf + x64 * pdf, "GeluTanh": (1 + t) / 2 + x64 * dt / 2, "Silu": s * (1 + x64 * (1 - s))}
    for name, slope in slopes.items():
        dx = dy64 * slope
        check(bodies, f"{name}BiasGrad", [dy, x], [dx, dx.sum(tuple(range(len(shape) - 1)))])


@pytest.mark.parametrize("shape, axis", [((2, 3, 8), -1), ((2, 3, 4), 1)])
def test_norm_of_a_sum(bodies, shape, axis):
    a, b = normal(*shape), normal(*shape, seed=1)
    scale, bias = (normal(*shape[axis:], seed=s) for s in (2, 3))
    a64, b64, scale64, bias64 = wide(a, b, scale, bias)
    axes = tuple(range(axis % len(shape), len(shape)))
    x = a64 + b64
    mean, inv = x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    check(bodies, "AddLayerNorm", [a, b, scale, bias], [x, (x - mean) * inv * scale64 + bias64, mean, inv],
          axis=axis, epsilon=1e-5)
    rms = np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)
    check(bodies, "AddRMSNorm", [a, b, scale], [x, x / rms * scale64], axis=axis, epsilon=1e-5)


def test_swiglu(bodies):
    x, gate, dy = (normal(3, 50, seed=s) for s in range(3))
    x64, gate64, dy64 = wide(x, gate, dy)
    s = 1 / (1 + np.exp(-x64))
    check(bodies, "SwiGLU", [x, gate], [x64 * s * gate64])
    check(bodies, "SwiGLUGrad", [dy, x, gate],
          [dy64 * gate64 * s * (1 + x64 * (1 - s)), dy64 * x64 * s])


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("shape, heads", [((2, 3, 8), 1), ((2, 3, 8), 2), ((2, 5, 6), 3), ((2, 0, 4), 2)])
def test_rotary(bodies, shape, heads, batches):
    depth = shape[2] // heads
    half = depth // 2
    x = normal(*shape)
    cos, sin = (normal(batches, shape[1], depth, seed=s) for s in (1, 2))
    x64, cos64, sin64 = wide(x, cos, sin)
    # The turn of one head's row as a matrix: its gradient is the transpose.
    turn = np.zeros((depth, depth))
    turn[:half, half:] = -np.eye(half)
    turn[half:, :half] = np.eye(half)
    forward, backward = np.zeros(shape), np.zeros(shape)
    for b, t, h in np.ndindex(*shape[:2], heads):
        c, s = cos64[b % batches, t], sin64[b % batches, t]
        matrix = np.diag(c) + np.diag(s) @ turn
        at = (b, t, slice(h * depth, (h + 1) * depth))
        forward[at] = matrix @ x64[at]
        backward[at] = matrix.T @ x64[at]
    check(bodies, "Rotary", [x, cos, sin], [forward], heads=heads)
    check(bodies, "RotaryGrad", [x, cos, sin], [backward], heads=heads)


@pytest.mark.parametrize("shape, axis", [((2, 3, 8), -1), ((2, 3, 4), 1)])
def test_rms_norm(bodies, shape, axis):
    x, scale = normal(*shape), normal(*shape[axis:], seed=1)
    x64, scale64 = wide(x, scale)
    axes = tuple(range(axis % len(shape), len(shape)))
    square = (x64 * x64).mean(axes, keepdims=True)
    check(bodies, "RMSNorm", [x, scale], [x64 / np.sqrt(square + 1e-5) * scale64], axis=axis, epsilon=1e-5)
