# SPDX-License-Identifier: Apache-2.0
"""Milliseconds that were predicted before a GPU was there. Reports print them
beside the measured ones; docs/cuda.md says how they were made."""

# By kind of GPU, then by section, then by row. Attention has a pair: forward,
# backward.
MILLISECONDS = {
    "h200": {
        "timeline": {
            "forward": 2.9, "dgrad": 2.9, "wgrad": 3.1, "quantize": 4.0,
            "attention": 4.8, "norm": 2.2, "other": 3.6, "optimizer": 1.0,
            "all": 24.5},
        "end_to_end": {
            "onnx-fp8, off": 31, "onnx-fp8, tensorwise": 27,
            "onnx-fp8, tensorwise --tune": 26,
            "onnx-fp8, tensorwise --nondeterministic": 25.5,
            "onnx-fp8, tensorwise --loss-chunk 0": 26,
            "onnx-fp8, delayed": 26, "onnx-fp8, rowwise": 30,
            "onnx-fp8, blockwise": 32, "PyTorch, bfloat16": 35,
            "PyTorch, tensorwise": 39.5},
        "llama": {
            "onnx-fp8, off": 136, "onnx-fp8, tensorwise": 100,
            "onnx-fp8, rowwise": 104, "onnx-fp8, blockwise": 115,
            "onnx-fp8, tensorwise --grad-accum 2": 90,
            "PyTorch, bfloat16": 145, "PyTorch, tensorwise": 115,
            "PyTorch, rowwise": 120},
        "attention": {
            "T 1024, D 64, H 12, B 16; slices 1": (0.09, 0.33),
            "T 1024, D 64, H 12, B 16; slices 4": (0.10, 0.33),
            "T 1024, D 64, H 12, B 16; slices 8": (0.11, 0.26),
            "T 1024, D 64, H 12, B 16; slices 1, any order": (0.09, 0.21),
            "T 8192, D 128, H 32, B 1; slices 1": (0.84, 2.95),
            "T 8192, D 128, H 32, B 1; slices 1, any order": (0.84, 2.54),
            "T 1024, D 128, H 32, B 8; slices 1": (0.14, 0.52),
            "T 1024, D 128, H 32, B 8; slices 1, any order": (0.14, 0.45),
            "T 8192, D 64, H 12, B 2; slices 1": (0.54, 1.95),
            "T 8192, D 64, H 12, B 2; slices 1, any order": (0.54, 1.2)}},
    "h100": {
        "end_to_end": {
            "onnx-fp8, off": 36, "onnx-fp8, tensorwise": 32,
            "onnx-fp8, rowwise": 35},
        "llama": {
            "onnx-fp8, off": 150, "onnx-fp8, tensorwise": 118,
            "onnx-fp8, rowwise": 122},
        "attention": {
            "T 1024, D 64, H 12, B 16; slices 1": (0.09, 0.36),
            "T 1024, D 64, H 12, B 16; slices 1, any order": (0.09, 0.21),
            "T 8192, D 128, H 32, B 1; slices 1": (0.84, 3.15),
            "T 8192, D 128, H 32, B 1; slices 1, any order": (0.84, 2.54)}}}


def of(gpu, section):
    """`gpu`: a name such as nvidia-h200. {} if nothing was predicted."""
    return next((rows.get(section, {}) for kind, rows in MILLISECONDS.items()
                 if kind in gpu), {})
