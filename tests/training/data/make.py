#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files beside it with NumPy and safetensors, so that the readers
are compared with their formats' own implementations: make.py, no arguments."""
import io
import pathlib
import zipfile

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
ARRAYS = {
    "x": X,
    "half": X.astype(np.float16),
    "double": X.astype(np.float64),
    "labels": np.array([3, -1], np.int64),
    "bytes": np.array([[0, 255]], np.uint8),
    "mask": np.array([True, False, True]),
    "scalar": np.array(7, np.int32),
    "empty": np.zeros((0, 3), np.uint16),
}


class Pipe(io.RawIOBase):
    """Can't seek: zipfile then writes data descriptors."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)


def streamed(path):
    array = io.BytesIO()
    np.save(array, X)
    with open(path, "wb") as file:
        with zipfile.ZipFile(Pipe(file), "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("x.npy", "w", force_zip64=True) as member:
                member.write(array.getvalue())


def main():
    np.savez(HERE / "stored.npz", **ARRAYS)
    np.savez_compressed(HERE / "deflated.npz", **ARRAYS)
    streamed(HERE / "streamed.npz")
    cube = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    np.save(HERE / "fortran.npy", np.asfortranarray(cube))
    np.save(HERE / "big_endian.npy", cube.astype(">i4"))
    with open(HERE / "version2.npy", "wb") as file:
        np.lib.format.write_array(file, X, version=(2, 0))
    np.save(HERE / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save(HERE / "records.npy", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
    np.save(HERE / "complex.npy", np.zeros(2, np.complex64))
    save_file(
        {**ARRAYS, "bf16": X.astype(ml_dtypes.bfloat16),
         "e4m3": X.astype(ml_dtypes.float8_e4m3fn),
         "e5m2": X.astype(ml_dtypes.float8_e5m2)},
        HERE / "arrays.safetensors", metadata={"format": "pt", "who": "tests"})


main()
