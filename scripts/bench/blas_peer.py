# SPDX-License-Identifier: Apache-2.0
"""Times one library for the products that stdin lists: cblas_sgemm, or
PyTorch's product of bfloat16. Usage: python -m bench.blas_peer
openblas|mkl|torch_bf16 SECONDS"""
import ctypes
import functools
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
    os.environ["MKL_THREADING_LAYER"] = "GNU"  # the OpenMP that is installed
    os.environ["MKL_INTERFACE_LAYER"] = "LP64"
    path, = pathlib.Path(sys.prefix, "lib").glob("libmkl_rt.so.*")
    library = ctypes.CDLL(str(path))
    name = ctypes.create_string_buffer(200)
    library.MKL_Get_Version_String(name, len(name))
    return library.cblas_sgemm, name.value.decode().strip()


def sgemm_call(sgemm, product, a, b):
    """A function that multiplies, and its result."""
    m, k, n, layout = (product[x] for x in ("m", "k", "n", "layout"))
    c = numpy.empty((m, n), "f4")
    how = [TRANSPOSED if t == "T" else AS_STORED for t in layout]

    def pointer(x):
        return x.ctypes.data_as(ctypes.c_void_p)

    arguments = (ROW_MAJOR, *how, m, n, k, ctypes.c_float(1), pointer(a),
                 a.shape[1], pointer(b), b.shape[1], ctypes.c_float(0),
                 pointer(c), n)
    return lambda: sgemm(*arguments), lambda: c


def bf16_call(torch, product, a, b):
    """The same in PyTorch: operands and result are bfloat16."""
    a, b = (x.T if t == "T" else x
            for x, t in zip((torch.from_numpy(a).bfloat16(),
                             torch.from_numpy(b).bfloat16()),
                            product["layout"]))
    c = torch.empty((product["m"], product["n"]), dtype=torch.bfloat16)
    return lambda: torch.mm(a, b, out=c), lambda: c.float().numpy()


def measure(make_call, product, seconds, tolerance):
    m, k, n, layout = (product[x] for x in ("m", "k", "n", "layout"))
    random = numpy.random.default_rng(0)
    shapes = [(m, k), (k, n)]
    a, b = (random.uniform(-1, 1, s[::-1] if t == "T" else s).astype("f4")
            for s, t in zip(shapes, layout))
    multiply, result = make_call(product, a, b)
    multiply()
    times = []
    while sum(times) < seconds or len(times) < 3:
        begin = time.perf_counter()
        multiply()
        times.append(time.perf_counter() - begin)
    a, b = (x.T if t == "T" else x for x, t in zip((a, b), layout))
    row = a[:1].astype("f8") @ b.astype("f8")
    assert numpy.allclose(result()[:1], row, atol=tolerance), "a wrong product"
    return 2 * m * n * k / min(times) / 1e9


def main():
    library, seconds = sys.argv[1], float(sys.argv[2])
    if library == "torch_bf16":
        import torch
        name, tolerance = torch.__version__, 1
        make_call = functools.partial(bf16_call, torch)
    else:
        sgemm, name = {"openblas": openblas, "mkl": mkl}[library]()
        tolerance = 1e-3
        make_call = functools.partial(sgemm_call, sgemm)
    gflops = [measure(make_call, product, seconds, tolerance)
              for product in json.load(sys.stdin)]
    print(json.dumps({"version": name, "gflops": gflops}))


if __name__ == "__main__":
    main()
