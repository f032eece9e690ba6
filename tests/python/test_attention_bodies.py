# SPDX-License-Identifier: Apache-2.0
"""The attention ops' bodies in onnx.reference and stock onnxruntime, compared
with their definition in float64."""
import ml_dtypes
import numpy as np
import onnx
import pytest

from test_gradient_bodies import bodies, check, normal, wide  # noqa: F401


def repeated(x, groups, heads):
    """(B,S,G*D) as (B,H,S,D)."""
    batch, length, width = x.shape
    split = x.reshape(batch, length, groups, width // groups)
    return split.transpose(0, 2, 1, 3).repeat(heads // groups, axis=1)


def joined(x):
    """(B,H,T,D) as (B,T,H*D)."""
    batch, heads, length, depth = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * depth)


def summed(x, groups):
    """(B,H,S,D) summed over the heads of a group, as (B,S,G*D)."""
    batch, heads, length, depth = x.shape
    return joined(x.reshape(batch, groups, heads // groups, length, depth).sum(2))


def define(q, k, v, dy, bias, heads, groups, scale, causal, round_to):
    def read(x):
        return x.astype(ml_dtypes.bfloat16 if round_to == onnx.TensorProto.BFLOAT16 else np.float64).astype(np.float64)

    q, k, v, dy, bias = wide(q, k, v, dy, bias)
    q4, k4, v4 = repeated(q, heads, heads), repeated(k, groups, heads), repeated(v, groups, heads)
    scores = scale * q4 @ k4.swapaxes(2, 3) + bias
    if causal:
        rows, columns = np.indices(scores.shape[2:])
        scores = np.where(columns > rows, -np.inf, scores)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - largest)
    total = powers.sum(-1, keepdims=True)
    lse = (largest + np.log(total))[..., 0]
    p = powers / total
    y = read(powers) @ v4 / total
    dy4 = repeated(dy, heads, heads)
    dp = dy4 @ v4.swapaxes(2, 3)
    ds = p * (dp - (dy4 * y).sum(-1, keepdims=True)) * scale
    ds = read(ds)
    dq, dk, dv = ds @ k4, ds.swapaxes(2, 3) @ q4, read(p).swapaxes(2, 3) @ dy4
    return joined(y), lse, joined(dq), summed(dk, groups), summed(dv, groups)


@pytest.mark.parametrize("heads, groups, t, s, causal", [(1, 1, 1, 1, 0), (2, 2, 5, 7, 0), (4, 2, 6, 6, 1), (3, 1, 8, 4, 1)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("round_to", [onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16])
def test_attention(bodies, heads, groups, t, s, causal, biased, round_to):  # noqa: F811
    q, k = normal(2, t, heads * 4), normal(2, s, groups * 4, seed=1)
    v, dy = normal(2, s, groups * 3, seed=2), normal(2, t, heads * 3, seed=3)
    bias = normal(2, 1, t, s, seed=4) if biased else np.zeros(1, np.float32)
    scale = np.float32(0.4)
    y, lse, dq, dk, dv = define(q, k, v, dy, bias, heads, groups, scale, causal, round_to)
    attributes = {"heads": heads, "kv_heads": groups, "scale": float(scale), "causal": causal, "round_to": round_to}
    operands = [q, k, v] + ([bias] if biased else [])
    name = "AttentionBias" if biased else "Attention"
    check(bodies, name, operands, [y, lse], **attributes)
    saved = [y.astype(np.float32), lse.astype(np.float32)]
    check(bodies, name + "Grad", [dy, *operands, *saved], [dq, dk, dv], **attributes)


@pytest.mark.parametrize("heads, groups, t, causal", [(1, 1, 1, 0), (2, 2, 5, 0), (4, 2, 6, 1)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("perm", [[0, 1, 2], [1, 0, 2]])
def test_packed_attention(bodies, heads, groups, t, causal, biased, perm):  # noqa: F811
    q, k, v = normal(2, t, heads * 4), normal(2, t, groups * 4, seed=1), normal(2, t, groups * 4, seed=2)
    dy = normal(2, t, heads * 4, seed=3)
    bias = normal(2, 1, t, t, seed=4) if biased else np.zeros(1, np.float32)
    scale = np.float32(0.4)
    y, lse, dq, dk, dv = define(q, k, v, dy, bias, heads, groups, scale, causal, onnx.TensorProto.FLOAT)

    def turned(*parts):
        return np.ascontiguousarray(np.concatenate(parts, axis=2).transpose(perm))

    attributes = {"heads": heads, "kv_heads": groups, "scale": float(scale), "causal": causal, "round_to": 1, "perm": perm}
    operands = [turned(q, k, v)] + ([bias] if biased else [])
    name = "AttentionPackedBias" if biased else "AttentionPacked"
    check(bodies, name, operands, [turned(y), lse], **attributes)
    saved = [turned(y).astype(np.float32), lse.astype(np.float32)]
    check(bodies, name + "Grad", [turned(dy), *operands, *saved], [turned(dq, dk, dv)], **attributes)


@pytest.mark.parametrize("heads, groups, t, s, causal", [(1, 1, 1, 1, 0), (2, 2, 5, 7, 0), (4, 2, 6, 4, 0), (3, 1, 6, 6, 1)])
def test_relative_attention(bodies, heads, groups, t, s, causal):  # noqa: F811
    q, k = normal(2, t, heads * 4), normal(2, s, groups * 4, seed=1)
    v, dy = normal(2, s, groups * 3, seed=2), normal(2, t, heads * 3, seed=3)
    bias, relative = normal(2, 1, 1, s, seed=4), normal(heads, t + s - 1, seed=5)
    places = np.arange(s)[None, :] - np.arange(t)[:, None] + t - 1
    scale = np.float32(0.5)
    whole = bias + relative[:, places][None]
    y, lse, dq, dk, dv = define(q, k, v, dy, whole, heads, groups, scale, causal, onnx.TensorProto.FLOAT)
    # A number's gradient is the sum over all scores to which it is added.
    drelative = np.zeros((heads, t + s - 1))
    step = 1e-5
    for h in range(heads):
        for place in range(t + s - 1):
            moved = np.where(places == place, step, 0)
            moved = np.where(np.arange(heads)[:, None, None] == h, moved, 0)[None]
            up, down = (define(q, k, v, dy, whole + sign * moved, heads, groups, scale, causal, onnx.TensorProto.FLOAT)[0]
                        for sign in (1, -1))
            drelative[h, place] = (dy * (up - down)).sum() / (2 * step)
    attributes = {"heads": heads, "kv_heads": groups, "scale": float(scale), "causal": causal, "round_to": 1}
    operands = [q, k, v, relative, bias]
    check(bodies, "AttentionRelative", operands, [y, lse], **attributes)
    saved = [y.astype(np.float32), lse.astype(np.float32)]
    check(bodies, "AttentionRelativeGrad", [dy, *operands, *saved], [dq, dk, dv, drelative], **attributes)


@pytest.mark.parametrize("heads, groups, causal", [(1, 1, 0), (4, 2, 1)])
@pytest.mark.parametrize("perm", [None, [0, 1, 2], [1, 0, 2]])
def test_attention_of_segments(bodies, heads, groups, causal, perm):  # noqa: F811
    t = 6
    q, k, v = normal(2, t, heads * 4), normal(2, t, groups * 4, seed=1), normal(2, t, groups * 4, seed=2)
    dy, bias = normal(2, t, heads * 4, seed=3), normal(1, seed=4)
    segments = np.array([[0, 0, 1, 1, 1, 2], [5, 3, 3, 3, 5, 3]], np.int32)
    same = segments[:, None, :, None] == segments[:, None, None, :]
    scale = np.float32(0.4)
    y, lse, dq, dk, dv = define(q, k, v, dy, np.where(same, bias, -np.inf), heads, groups, scale, causal, onnx.TensorProto.FLOAT)
    attributes = {"heads": heads, "kv_heads": groups, "scale": float(scale), "causal": causal, "round_to": 1}
    if not perm:
        operands = [q, k, v, bias, segments]
        check(bodies, "AttentionSegments", operands, [y, lse], **attributes)
        saved = [y.astype(np.float32), lse.astype(np.float32)]
        check(bodies, "AttentionSegmentsGrad", [dy, *operands, *saved], [dq, dk, dv], **attributes)
        return

    def turned(*parts):
        return np.ascontiguousarray(np.concatenate(parts, axis=2).transpose(perm))

    operands = [turned(q, k, v), bias, segments]
    check(bodies, "AttentionPackedSegments", operands, [turned(y), lse], perm=perm, **attributes)
    saved = [turned(y).astype(np.float32), lse.astype(np.float32)]
    check(bodies, "AttentionPackedSegmentsGrad", [turned(dy), *operands, *saved], [turned(dq, dk, dv)], perm=perm, **attributes)
