#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime runs a model whose linear layers our provider computes in FP8.

  python samples/python/in_onnxruntime.py

Needs the package onnxruntime, 1.23 or newer.
"""
import pathlib

import numpy as np
import onnxruntime

import onnx_fp8.ort

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "digits_mlp"


def main():
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(onnx_fp8.ort.register(), {"recipe": "tensorwise"})
    model = str(SAMPLES / "digits_mlp.onnx")
    ours = onnxruntime.InferenceSession(model, options)
    stock = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.load(SAMPLES / "val.npz")["x"]
    [in_fp8], [in_fp32] = ours.run(None, {"x": x}), stock.run(None, {"x": x})
    print(f"largest difference of a logit: {np.abs(in_fp8 - in_fp32).max():.4f}, of {np.abs(in_fp32).max():.4f}")
    assert 0 < np.abs(in_fp8 - in_fp32).max() < 0.1 * np.abs(in_fp32).max()


if __name__ == "__main__":
    main()
