# SPDX-License-Identifier: Apache-2.0
"""The attention ops' bodies in onnx.reference and stock onnxruntime, compared
with their definition in float64."""
import numpy as np
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


def define(q, k, v, dy, bias, heads, groups, scale, causal):
    q, k, v, dy, bias = wide(q, k, v, dy, bias)
    q4, k4, v4 = repeated(q, heads, heads), repeated(k, groups, heads), repeated(v, groups, heads)
    scores = scale * q4 @ k4.swapaxes(2, 3) + bias
    if causal:
        rows, columns = np.indices(scores.shape[2:])
        scores = np.where(columns > rows, -np.inf, scores)
    lse = np.log(np.exp(scores).sum(-1))
    p = np.exp(scores - lse[..., None])
    y = p @ v4
    dy4 = repeated(dy, heads, heads)
    dp = dy4 @ v4.swapaxes(2, 3)
    ds = p * (dp - (dy4 * y).sum(-1, keepdims=True)) * scale
    dq, dk, dv = ds @ k4, ds.swapaxes(2, 3) @ q4, p.swapaxes(2, 3) @ dy4
    return joined(y), lse, joined(dq), summed(dk, groups), summed(dv, groups)


@pytest.mark.parametrize("heads, groups, t, s, causal", [(1, 1, 1, 1, 0), (2, 2, 5, 7, 0), (4, 2, 6, 6, 1), (3, 1, 8, 4, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(bodies, heads, groups, t, s, causal, biased):  # noqa: F811
    q, k = normal(2, t, heads * 4), normal(2, s, groups * 4, seed=1)
    v, dy = normal(2, s, groups * 3, seed=2), normal(2, t, heads * 3, seed=3)
    bias = normal(2, 1, t, s, seed=4) if biased else np.zeros(1, np.float32)
    scale = np.float32(0.4)
    y, lse, dq, dk, dv = define(q, k, v, dy, bias, heads, groups, scale, causal)
    attributes = {"heads": heads, "kv_heads": groups, "scale": float(scale), "causal": causal}
    operands = [q, k, v] + ([bias] if biased else [])
    name = "AttentionBias" if biased else "Attention"
    check(bodies, name, operands, [y, lse], **attributes)
    saved = [y.astype(np.float32), lse.astype(np.float32)]
    check(bodies, name + "Grad", [dy, *operands, *saved], [dq, dk, dv], **attributes)
