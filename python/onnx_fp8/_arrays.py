# SPDX-License-Identifier: Apache-2.0
"""Arrays between Python and the extension, which takes (array, name of the dtype)."""
import numpy as np

from ._errors import Error

# numpy has no such floats; the package ml_dtypes adds them under the first name.
_NARROW = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2",
           "float8_e8m0fnu": "float8e8m0"}
_ML_DTYPES = {ours: theirs for theirs, ours in _NARROW.items()}


def _numbers(name, array):
    try:
        numbers = np.asarray(array)
    except (ValueError, TypeError, RuntimeError):  # rows of other lengths, a tensor of a device
        raise Error(f"[{name}] expected an array of numbers, or rows of one length, got {type(array).__name__}") from None
    if numbers.dtype.kind == "O" and not isinstance(array, np.ndarray):
        raise Error(f"[{name}] expected an array of numbers, got {type(array).__name__}")
    return numbers


def _to_core(name, array):
    if hasattr(array, "__dlpack__") and not isinstance(array, (np.ndarray, np.generic)):
        if hasattr(array, "detach"):  # PyTorch gives no memory away that has a gradient
            array = array.detach().contiguous()
        return array, ""
    array = _numbers(name, array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.name not in _NARROW):
        raise Error(f"[{name}] expected an array of numbers, got {array.dtype}")
    array = np.require(array, requirements=["C", "A"])
    dtype = _NARROW.get(array.dtype.name, "")
    if dtype:
        array = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return array, dtype


def to_core(arrays, what="batch"):
    """{name: array} → {name: (array, dtype)}. Memory is shared, unless an array is not row-major. `what` names the dict
    in messages."""
    if not hasattr(arrays, "items"):
        raise Error(f"[{what}] expected a dict of arrays by their names, got {type(arrays).__name__}")
    for name in arrays:
        if not isinstance(name, str):
            raise Error(f"[{what}] expected names of arrays as keys, got {name!r}: a dict of rows is one array for each "
                        "name, with the rows along its first axis")
    return {name: _to_core(name, array) for name, array in arrays.items()}


def _from_core(array, dtype):
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return array
        return array.view(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    return array


def from_core(arrays):
    """{name: (array, dtype)} → {name: array}, in the same memory."""
    return {name: _from_core(*pair) for name, pair in arrays.items()}
