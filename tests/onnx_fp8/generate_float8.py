#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ml_dtypes' tables of the two 8-bit formats to float8_e4m3.bin and
float8_e5m2.bin beside this file, for float8_test.cc. Little endian:

  256 x fp32      the value of each code
  65536 x uint8   the code of each bf16 value (saturating cast)
  N x fp32        every midpoint of two neighboring codes, and the fp32 values
                  next to it on both sides, both signs
  N x uint8       their codes
"""
import pathlib

import ml_dtypes
import numpy as np

for name, dtype, largest in (
    ("e4m3", ml_dtypes.float8_e4m3fn, 448),
    ("e5m2", ml_dtypes.float8_e5m2, 57344),
):

    def encode(x):
        return np.clip(x, -largest, largest).astype(dtype).view(np.uint8)

    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    bf16 = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    codes = np.sort(values[:128][np.isfinite(values[:128])])
    middle = (codes[1:] + codes[:-1]) / np.float32(2)
    near = np.concatenate([np.nextafter(middle, np.float32(0)), middle, np.nextafter(middle, np.float32(np.inf))])
    near = np.concatenate([near, -near]).astype(np.float32)
    with np.errstate(invalid="ignore"):
        parts = [values, encode(bf16), near, encode(near)]
    path = pathlib.Path(__file__).with_name(f"float8_{name}.bin")
    path.write_bytes(b"".join(p.tobytes() for p in parts))
