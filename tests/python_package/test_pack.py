# SPDX-License-Identifier: Apache-2.0
"""`pack`: documents as rows of one length."""
import numpy as np
import onnx_fp8
import pytest


def test_rows_of_documents():
    packed = onnx_fp8.pack([[1, 2], np.arange(10, 15, dtype=np.uint16), [], [7]], 7, pad=99)
    assert all(array.dtype == np.int64 for array in packed.values())
    assert packed["input_ids"].tolist() == [[10, 11, 12, 13, 14, 1, 2], [7, 99, 99, 99, 99, 99, 99]]
    assert packed["labels"].tolist() == [[11, 12, 13, 14, -100, 2, -100], [-100] * 7]
    assert packed["segment_ids"].tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 1, 1, 1]]
    assert packed["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1], [0, 0, 1, 2, 3, 4, 5]]


def test_a_cut_document_keeps_the_label_of_its_cut():
    packed = onnx_fp8.pack([[1, 2, 3, 4, 5]], 3)
    assert packed["input_ids"].tolist() == [[1, 2, 3], [4, 5, 0]]
    assert packed["labels"].tolist() == [[2, 3, 4], [5, -100, -100]]


def test_documents_that_fit_two_by_two_fill_their_rows():
    lengths = np.random.default_rng(0).permutation([*range(1, 33), *range(32, 64)])
    documents = [np.arange(n) + 1000 * i for i, n in enumerate(lengths)]
    packed = onnx_fp8.pack(documents, 64, pad=-1)
    assert packed["input_ids"].shape == (32, 64)
    found = {}
    for ids, segments in zip(packed["input_ids"], packed["segment_ids"]):
        for segment in np.unique(segments):
            tokens = ids[segments == segment].tolist()
            found[tokens[0] // 1000] = tokens
    assert found == {i: document.tolist() for i, document in enumerate(documents)}


@pytest.mark.parametrize("arguments, words", [
    (([[1.5]], 4), r"documents\[0\]\] expected integers along one axis, got float64\[1\]"),
    (([[1], [[2]]], 4), r"documents\[1\]\] expected integers along one axis, got int64\[1, 1\]"),
    (([[1]], 0), "`length`: expected a whole number of at least 1"),
    (([[1]], 2.5), "`length`: expected a whole number of at least 1"),
    (([[]], 4), "expected at least one token"),
    (([], 4), "expected at least one token"),
])
def test_refuses(arguments, words):
    with pytest.raises(onnx_fp8.Error, match=words):
        onnx_fp8.pack(*arguments)
