# SPDX-License-Identifier: Apache-2.0
"""The bodies of the ops of FP8 moments in onnx.reference and stock onnxruntime,
compared with our kernels and with numpy."""
import numpy as np
import pytest
from test_quantize_bodies import DOMAIN, E4M3, STORAGE, Runner, assert_all_same, bodies  # noqa: F401

ROWS, COLUMNS, BLOCKS = 3, 300, 3
SEED, UPDATE, STREAM = 5 | 9 << 40, 3, 77
DRAWS = f"<stream = {STREAM}, shift = 0, row = 1, stride = 1, begin = 0>"


def mix(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


def draws(count):
    key = mix(SEED & 0xFFFFFFFF ^ STREAM)
    key = mix(UPDATE ^ mix(SEED >> 32 ^ key))
    own = mix(key)
    return np.array([mix(i ^ own) >> 16 for i in range(count)]) / 65536


def moments(squared):
    """Elements of very different sizes, zeros, denormals; the last are not finite."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, COLUMNS)) * np.exp(4 * rng.standard_normal((ROWS, COLUMNS)))
    x = x.astype(np.float32)
    x[0, 5], x[1, :128], x[2, 1], x[2, 2] = 1e6, 0, -0.0, 1e-42
    x[2, 130:133] = np.inf, np.nan, -np.inf
    return np.abs(x) if squared else x


def encoded(x, squared):
    """The numbers of the codes, and the scales."""
    real = np.sqrt(x) if squared else x
    finite = np.isfinite(real)
    numbers, scales = np.empty_like(x), np.empty((ROWS, BLOCKS), np.float32)
    unit = draws(x.size).reshape(x.shape)
    for row in range(ROWS):
        for block in range(BLOCKS):
            at = row, slice(128 * block, 128 * block + 128)
            amax = np.abs(real[at][finite[at]]).max(initial=0)
            scales[row, block] = scale = max(amax / np.float32(448), np.float32(2.0**-126))
            y = real[at] / scale
            if squared:
                y = np.where(finite[at], y, 0).astype(np.float64)
                kept = np.maximum(y, 2.0**-9)
                ulp = 2.0 ** (np.maximum(np.frexp(kept)[1] - 1, -6) - 3)
                kept = np.minimum(np.floor(kept / ulp + unit[at]) * ulp, 448)
                y = np.where(finite[at], np.where(y > 0, kept, 0), np.nan)
            numbers[at] = np.clip(y, -448, 448).astype(np.float32).astype(STORAGE[E4M3])
    return numbers, scales


@pytest.mark.parametrize("squared", [False, True])
def test_encode(tmp_path, bodies, squared):  # noqa: F811
    op, more = ("EncodeSecondMoment", ", seed, update") if squared else ("EncodeMoment", "")
    types = ", int64 seed, int64 update" if squared else ""
    size, sizes = f"float[{ROWS},{COLUMNS}]", f"float[{ROWS},{BLOCKS}]"
    graph = f"""g ({size} x, {size} old, {sizes} scale, bool ok{types}) => ({size} code, {sizes} new_scale) {{
      old_codes = Cast<to = {E4M3}>(old)
      codes, new_scale = {DOMAIN}.{op}{DRAWS if squared else ''}(x, old_codes, scale, ok{more})
      code = Cast<to = 1>(codes) }}"""
    runner = Runner(tmp_path, bodies, graph, [op])
    rng = np.random.default_rng(2)
    x = moments(squared)
    old = rng.standard_normal(x.shape).astype(np.float32).astype(STORAGE[E4M3]).astype(np.float32)
    scale = rng.random((ROWS, BLOCKS)).astype(np.float32)
    feeds = {"x": x, "old": old, "scale": scale}
    if squared:
        feeds |= {"seed": np.asarray(SEED), "update": np.asarray(UPDATE)}
    with np.errstate(all="ignore"):
        fresh = encoded(x, squared)
    for ok, (numbers, scales) in ((True, fresh), (False, (old, scale))):
        results = runner.run(**feeds, ok=np.asarray(ok))
        for result in results:
            result["code"] = result["code"] + np.float32(0)  # onnxruntime's zeros have no sign
        ours = assert_all_same(results)
        np.testing.assert_array_equal(ours["code"], numbers)
        np.testing.assert_array_equal(ours["new_scale"], scales)


@pytest.mark.parametrize("squared", [0, 1])
def test_decode(tmp_path, bodies, squared):  # noqa: F811
    size, sizes = f"float[{ROWS},{COLUMNS}]", f"float[{ROWS},{BLOCKS}]"
    graph = f"""g ({size} code, {sizes} scale) => ({size} x) {{
      codes = Cast<to = {E4M3}>(code)
      x = {DOMAIN}.DecodeMoment<squared = {squared}>(codes, scale) }}"""
    runner = Runner(tmp_path, bodies, graph, ["DecodeMoment"])
    with np.errstate(all="ignore"):
        code, scale = encoded(moments(bool(squared)), bool(squared))
        want = code * np.repeat(scale, 128, axis=1)[:, :COLUMNS]
    if squared:
        want = np.where(np.isnan(want), np.float32(np.inf), want * want)
    results = runner.run(code=code, scale=scale)
    for result in results:
        result["x"] = result["x"] + np.float32(0)
    np.testing.assert_array_equal(assert_all_same(results)["x"], want)
