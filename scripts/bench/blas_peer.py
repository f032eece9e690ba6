# SPDX-License-Identifier: Apache-2.0
"""Times cblas_sgemm of one library for the products that stdin lists.
Usage: python -m bench.blas_peer openblas|mkl SECONDS"""
import ctypes
import json
import os
import pathlib
import sys
import time

import numpy

ROW_MAJOR, AS_STORED, TRANSPOSED = 101, 111, 112


def openblas():
    import scipy_openblas32
    library = ctypes.CDLL(str(pathlib.Path(scipy_openblas32.get_lib_dir())
                              / "libscipy_openblas.so"))
    library.scipy_openblas_get_config.restype = ctypes.c_char_p
    name = library.scipy_openblas_get_config().decode()
    return library.scipy_cblas_sgemm, name


def mkl():
    os.environ["MKL_THREADING_LAYER"] = "GNU"  # the OpenMP that is there
    os.environ["MKL_INTERFACE_LAYER"] = "LP64"
    path, = pathlib.Path(sys.prefix, "lib").glob("libmkl_rt.so.*")
    library = ctypes.CDLL(str(path))
    name = ctypes.create_string_buffer(200)
    library.MKL_Get_Version_String(name, len(name))
    return library.cblas_sgemm, name.value.decode().strip()


def measure(sgemm, product, seconds):
    m, k, n, layout = (product[x] for x in ("m", "k", "n", "layout"))
    random = numpy.random.default_rng(0)
    shapes = [(m, k), (k, n)]
    a, b = (random.uniform(-1, 1, s[::-1] if t == "T" else s).astype("f4")
            for s, t in zip(shapes, layout))
    c = numpy.empty((m, n), "f4")
    how = [TRANSPOSED if t == "T" else AS_STORED for t in layout]

    def pointer(x):
        return x.ctypes.data_as(ctypes.c_void_p)

    arguments = (ROW_MAJOR, *how, m, n, k, ctypes.c_float(1), pointer(a),
                 a.shape[1], pointer(b), b.shape[1], ctypes.c_float(0),
                 pointer(c), n)
    sgemm(*arguments)
    times = []
    while sum(times) < seconds or len(times) < 3:
        begin = time.perf_counter()
        sgemm(*arguments)
        times.append(time.perf_counter() - begin)
    a, b = (x.T if t == "T" else x for x, t in zip((a, b), layout))
    row = a[:1].astype("f8") @ b.astype("f8")
    assert numpy.allclose(c[:1], row, atol=1e-3), "a wrong product"
    return 2 * m * n * k / min(times) / 1e9


def main():
    sgemm, name = {"openblas": openblas, "mkl": mkl}[sys.argv[1]]()
    gflops = [measure(sgemm, product, float(sys.argv[2]))
              for product in json.load(sys.stdin)]
    print(json.dumps({"version": name, "gflops": gflops}))


if __name__ == "__main__":
    main()
