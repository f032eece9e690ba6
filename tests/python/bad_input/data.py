# SPDX-License-Identifier: Apache-2.0
"""Arrays and token files that can't be read, or that do not fit the model."""
import json
import struct
import warnings
import zipfile

import numpy as np

from bad_input.case import BATCH, FIXTURES, Cases, arrays, cut, flip, good, grad, train

CASES = cases = Cases()
ASSETS = FIXTURES.parent / "training" / "data"


def using(folder, name="d.npz", **flags):
    """The command that reads the data file `name`."""
    good(folder)
    return grad(folder, data=name, **flags)


def npz(folder, **changes):
    """d.npz: the good arrays with these changes; None omits an array."""
    merged = {**arrays(), **changes}
    np.savez(folder / "d.npz", **{k: v for k, v in merged.items() if v is not None})


# ---- .npz and .npy

@cases("[d.npz] can't be opened: No such file or directory")
def no_such_file(folder):
    return using(folder)


@cases("[d.npz] expected a ZIP file, got 0 bytes")
def empty_npz(folder):
    (folder / "d.npz").write_bytes(b"")
    return using(folder)


@cases("[d.npz] expected a ZIP file; its end is missing (truncated, or of another format)")
def npz_of_text(folder):
    (folder / "d.npz").write_text("x,y\n" * 100)
    return using(folder)


@cases("[d.npz] expected a ZIP file; its end is missing (truncated, or of another format)")
def truncated_npz(folder):
    npz(folder)
    cut(folder / "d.npz", -100)
    return using(folder)


@cases("[d.npz: x.npy] is damaged: its checksum does not fit")
def npz_with_a_flipped_byte(folder):
    npz(folder)
    flip(folder / "d.npz", 200)
    return using(folder)


@cases("[d.npz: x.npy] is damaged: it can't be inflated to")
def deflated_npz_with_flipped_bytes(folder):
    np.savez_compressed(folder / "d.npz", **arrays())
    for at in range(60, 70):
        flip(folder / "d.npz", at, 0xFF)
    return using(folder)


@cases("[d.npz] has a ZIP directory outside the file")
def npz_with_a_directory_outside(folder):
    npz(folder)
    flip(folder / "d.npz", -3, 0x40)  # the directory's offset
    return using(folder)


@cases("[d.npz: readme.txt] expected .npy arrays only")
def npz_with_a_text(folder):
    npz(folder)
    with zipfile.ZipFile(folder / "d.npz", "a") as archive:
        archive.writestr("readme.txt", "hello")
    return using(folder)


@cases("[d.npz] holds \"x.npy\" twice")
def npz_with_an_array_twice(folder):
    npz(folder)
    with zipfile.ZipFile(folder / "d.npz", "a") as archive, warnings.catch_warnings(action="ignore"):
        archive.writestr("x.npy", b"another one")
    return using(folder)


@cases("npy] expected bytes of its own, got some that belong to \"", "npy\" too")
def npz_whose_arrays_share_bytes(folder):
    npz(folder)
    data = bytearray((folder / "d.npz").read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42:second + 46] = data[first + 42:first + 46]  # where it lies
    (folder / "d.npz").write_bytes(data)
    return using(folder)


@cases("[d.npz: x.npy] expected at most 256 bytes of inflated arrays, got more: --budget arrays=N raises the budget")
def npz_that_inflates_beyond_its_budget(folder):
    """The labels fit, x does not; arrays that are no input are not read."""
    good(folder)
    np.savez_compressed(folder / "d.npz", **arrays(), unused=np.zeros(1 << 20))
    return grad(folder, "--budget", "arrays=256", data="d.npz")


def npy(folder, header, data=b"", name="x.npy"):
    text = header.encode() + b"\n"
    (folder / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    np.save(folder / "labels.npy", arrays()["labels"])
    good(folder)
    return grad(folder, "--data", "labels.npy", data=name)


@cases("[x.npy] expected an .npy array")
def npy_of_text(folder):
    (folder / "x.npy").write_text("not an array")
    return using(folder, "x.npy")


@cases("[x.npy] expected float[4,5] in 64 bytes, which it does not fill or fit")
def truncated_npy(folder):
    return npy(folder, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 5), }", bytes(64))


@cases("[x.npy] has a damaged .npy header, expected {'descr': …, 'fortran_order': …, 'shape': …}")
def npy_header_of_nonsense(folder):
    return npy(folder, "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (4, 5), }", bytes(80))


@cases("[x.npy] is truncated within its .npy header")
def npy_header_beyond_the_file(folder):
    npy(folder, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 5), }", bytes(80))
    cut(folder / "x.npy", 30)
    return using(folder, "x.npy")


@cases("[x.npy] expected .npy format 1 to 3, got 9")
def npy_of_the_future(folder):
    command = npy(folder, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 5), }", bytes(80))
    flip(folder / "x.npy", 6, 0x08)
    return command


@cases("[x.npy] expected a tensor of less than 2^63 elements")
def npy_whose_size_overflows(folder):
    shape = "(4611686018427387904, 4611686018427387904)"
    return npy(folder, f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", bytes(80))


@cases("[x.npy] expected float[4,5] in 40 bytes, which it does not fill or fit")
def truncated_fortran_npy(folder):
    return npy(folder, "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 5), }", bytes(40))


@cases("[x.npy] expected an array of numbers, got Python objects")
def npy_of_objects(folder):
    (folder / "x.npy").write_bytes((ASSETS / "objects.npy").read_bytes())
    return using(folder, "x.npy")


@cases("[x.npy] expected float16, 32, 64, an integer type or bool, got dtype \"<c16\"")
def npy_of_complex_numbers(folder):
    np.save(folder / "x.npy", np.ones((4, 5), np.complex128))
    return using(folder, "x.npy")


@cases("[x.npy] expected an array of numbers, got records")
def npy_of_records(folder):
    (folder / "x.npy").write_bytes((ASSETS / "records.npy").read_bytes())
    return using(folder, "x.npy")


@cases("[d.csv] expected a .npz, .npy or .safetensors file")
def data_of_an_unknown_kind(folder):
    (folder / "d.csv").write_text("1,2\n")
    return using(folder, "d.csv")


# ---- .safetensors

def safetensors(folder, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    (folder / "d.safetensors").write_bytes(struct.pack("<Q", size) + text + data)
    return using(folder, "d.safetensors")


def entry(begin, end, dtype="F32", shape=(4, 5)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@cases("[d.safetensors] expected a safetensors file, got 3 bytes")
def safetensors_of_three_bytes(folder):
    (folder / "d.safetensors").write_bytes(b"abc")
    return using(folder, "d.safetensors")


@cases("[d.safetensors] expected a safetensors header within", "got header length 1152921504606846976")
def safetensors_with_a_huge_header(folder):
    return safetensors(folder, {"x": entry(0, 80)}, bytes(80), length=1 << 60)


@cases("[d.safetensors] expected a JSON object as the safetensors header")
def safetensors_with_bad_json(folder):
    return safetensors(folder, b'{"x": {"dtype": "F32", ', bytes(80))


@cases("[d.safetensors] expected a JSON object as the safetensors header, got deep nesting")
def safetensors_nested_deeply(folder):
    return safetensors(folder, b'{"x": ' + b"[" * 1_000_000, bytes(80))


@cases("[d.safetensors] expected every tensor once, got \"x\" twice")
def safetensors_with_a_name_twice(folder):
    item = json.dumps(entry(0, 80))
    return safetensors(folder, f'{{"x": {item}, "x": {item}}}'.encode(), bytes(80))


@cases("[d.safetensors] expected tensor \"x\" at byte 32 of the data, got 16 (overlap)")
def safetensors_that_overlap(folder):
    return safetensors(folder, {"labels": entry(0, 32, "I64", [4]), "x": entry(16, 96)}, bytes(96))


@cases("[d.safetensors] expected tensor \"x\" at byte 32 of the data, got 64 (hole)")
def safetensors_with_a_hole(folder):
    return safetensors(folder, {"labels": entry(0, 32, "I64", [4]), "x": entry(64, 144)}, bytes(144))


@cases("[d.safetensors] expected 80 bytes of data, got 40 (truncated?)")
def safetensors_that_ends_early(folder):
    return safetensors(folder, {"x": entry(0, 80)}, bytes(40))


@cases("[d.safetensors: x] expected data_offsets [begin, end]")
def safetensors_with_offsets_turned_round(folder):
    return safetensors(folder, {"x": entry(80, 0)}, bytes(80))


@cases("[d.safetensors: x] expected whole numbers below 2^63 in shape")
def safetensors_with_a_negative_axis(folder):
    return safetensors(folder, {"x": entry(0, 80, shape=[-4, 5])}, bytes(80))


@cases("[d.safetensors: x] expected float[4,6] in 80 bytes, which it does not fill or fit")
def safetensors_whose_shape_is_not_its_size(folder):
    return safetensors(folder, {"x": entry(0, 80, shape=[4, 6])}, bytes(80))


@cases("[d.safetensors: x] expected a known dtype, got \"F7\"")
def safetensors_of_unknown_dtype(folder):
    return safetensors(folder, {"x": entry(0, 80, "F7")}, bytes(80))


@cases("[d.safetensors: x] expected a bool to be 0 or 1, got 7")
def safetensors_with_a_bool_of_seven(folder):
    return safetensors(folder, {"x": entry(0, 20, "BOOL")}, b"\x07" * 20)


# ---- arrays that do not fit the model

@cases("[d.npz] expected an array \"x\", got inputs, labels")
def missing_input(folder):
    npz(folder, x=None, inputs=arrays()["x"])
    return using(folder)


@cases("[d.npz] expected an array \"labels\", got x; --label names another one")
def missing_labels(folder):
    npz(folder, labels=None)
    return using(folder)


@cases("[d.npz] array \"x\" has 4 samples, \"labels\" has 7; an array that is not per sample can be named with "
       "--whole")
def arrays_of_different_lengths(folder):
    npz(folder, labels=np.zeros(7, np.int64))
    return using(folder)


@cases("[d.npz] holds no samples")
def no_samples(folder):
    npz(folder, x=np.zeros((0, 5), np.float32), labels=np.zeros(0, np.int64))
    return using(folder)


@cases("[d.npz] expected at least one batch of 2 samples, got 1")
def less_than_a_batch(folder):
    npz(folder, x=np.zeros((1, 5), np.float32), labels=np.zeros(1, np.int64))
    good(folder)
    return train(data="d.npz")


@cases("[d.npz] expected array \"x\" with a sample axis, got a scalar")
def scalar_input(folder):
    npz(folder, x=np.float32(1))
    return using(folder)


@cases("[m.onnx] expected input \"x\" of shape [?,5], got [4,6]")
def input_of_another_shape(folder):
    npz(folder, x=np.zeros((4, 6), np.float32))
    return using(folder)


@cases("[m.onnx] expected input \"x\" of shape [?,5], got [4,5,1]")
def input_of_another_rank(folder):
    npz(folder, x=np.zeros((4, 5, 1), np.float32))
    return using(folder)


@cases("[d.npz] expected array \"labels\" of int64, got float")
def labels_of_floats(folder):
    npz(folder, labels=np.zeros(4, np.float32))
    return using(folder)


@cases("[m.onnx] expected float labels \"labels\", which are probabilities of the classes, of the shape [4,3] of \"y\", "
       "got [4,2]; numbers of classes are integers")
def probabilities_of_too_few_classes(folder):
    npz(folder, labels=np.zeros((4, 2), np.float32))
    return using(folder)


@cases("[d.npz] expected array \"labels\" of int64, got float")
def labels_of_floats_for_nll(folder):
    npz(folder, labels=np.zeros((4, 3), np.float32))
    return using(folder, loss="nll")


@cases("[m.onnx] expected labels of shape [4], got [4,2] in input \"labels\"")
def labels_with_an_axis_too_many(folder):
    npz(folder, labels=np.zeros((4, 2), np.int64))
    return using(folder)


@cases("[m.onnx] expected labels of shape [4], got [4,3] in input \"labels\"; labels of the logits' shape are "
       "probabilities, of float")
def labels_of_integers_for_each_class(folder):
    npz(folder, labels=np.zeros((4, 3), np.int64))
    return using(folder)


@cases("[m.onnx] --ignore-index: expected labels that are numbers of classes, got probabilities in \"labels\"", code=2)
def ignored_probabilities(folder):
    npz(folder, labels=np.zeros((4, 3), np.float32))
    return [*using(folder), "--ignore-index", "1"]


def images(folder, axes, labels):
    """A model from pixels (N, 3, 3, 3) to logits of the same shape, and labels of that shape."""
    from bad_input.case import TensorProto, helper, model, save, tensors
    value = helper.make_tensor_value_info
    save(model([helper.make_node("Add", ["x", "b"], ["y"])], tensors({"b": np.zeros((3, 3, 3), np.float32)}),
               inputs=[value("x", TensorProto.FLOAT, axes)]), folder / "m.onnx")
    np.savez(folder / "d.npz", x=np.zeros((2, 3, 3, 3), np.float32), labels=labels)
    return ["grad", "m.onnx", "--data", "d.npz", "--loss", "cross_entropy", "-o", "out.npz"]


@cases("[m.onnx] expected one axis of \"y\", of shape [2,3,3,3], along which the classes lie, but the labels \"labels\" of "
       "shape [2,3,3] fit two: --class-axis 1 is PyTorch's, --class-axis -1 that of tokens")
def classes_along_two_axes(folder):
    return images(folder, ["n", 3, 3, 3], np.zeros((2, 3, 3), np.int64))


@cases("fit two: --class-axis 1 is PyTorch's")
def classes_along_two_open_axes(folder):
    return images(folder, ["n", 3, "h", "w"], np.zeros((2, 3, 3), np.int64))


@cases("fit two: --class-axis 1 is PyTorch's")
def probabilities_along_two_axes(folder):
    return images(folder, ["n", 3, 3, 3], np.full((2, 3, 3, 3), 0.5, np.float32))


@cases("expected labels of shape [2,3,3] (classes along axis 1) or [2,3,3] (classes along axis 3), got [2,4,3]")
def labels_of_other_pixels(folder):
    return images(folder, ["n", 3, 3, 3], np.zeros((2, 4, 3), np.int64))


@cases("expected the axis of \"y\", of shape [2,3,3,3], along which the classes lie: --class-axis 1 is PyTorch's")
def step_without_the_axis_of_its_classes(folder):
    images(folder, ["n", 3, 3, 3], np.zeros((2, 3, 3), np.int64))
    return ["rewrite", "m.onnx", "--loss", "cross_entropy", "--shape", "n=2", "-o", "step.onnx"]


@cases("expected labels in 0", "got 7")
def label_beyond_the_weighted_classes(folder):
    npz(folder, labels=np.array([0, 1, 2, 7]))
    return [*using(folder), "--class-weights", "1,2,3", "--label-smoothing", "0.1"]


@cases("[m.onnx] expected labels of shape [4,3], got [4] in input \"labels\"")
def labels_of_mse_without_the_classes(folder):
    npz(folder, labels=np.zeros(4, np.float32))
    return using(folder, loss="mse")


@cases("[onnx_fp8.CrossEntropyWithGrad -> loss] expected labels in 0 … 2 or -100 (left out), got 3")
def label_beyond_the_classes(folder):
    npz(folder, labels=np.array([0, 1, 3, 2]))
    return using(folder)


@cases("[onnx_fp8.CrossEntropyWithGrad -> loss] expected labels in 0 … 2 or -100 (left out), got -1")
def negative_label(folder):
    npz(folder, labels=np.array([0, -1, 1, 2]))
    return using(folder)


@cases("[onnx_fp8.CrossEntropyWithGrad -> loss] expected labels in 0 … 2 or -100 (left out), got 9",
       leaves=("run/config.json", "run/model/m.onnx"))
def label_beyond_the_classes_in_training(folder):
    npz(folder, labels=np.array([9, 9, 9, 9]))
    good(folder)
    return train(data="d.npz")


@cases("[d.npz: labels] expected values that fit int64, got 1.84467e+19")
def label_beyond_int64(folder):
    npz(folder, labels=np.full(4, (1 << 64) - 1, np.uint64))
    return using(folder)


@cases("[e.npz] expected array \"x\" of float[5] per sample as in good.npz, got float[6]")
def second_file_of_another_shape(folder):
    np.savez(folder / "e.npz", x=np.zeros((4, 6), np.float32), labels=np.zeros(4, np.int64))
    good(folder)
    return grad(folder, "--data", "e.npz")


# ---- tokens

GPT = FIXTURES / "nanogpt" / "d18.onnx"


def tokens(folder, values, *flags, dtype=np.uint16):
    (folder / "t.bin").write_bytes(np.asarray(values, dtype).tobytes())
    return ["grad", GPT, "--data", "t.bin", "--loss", "cross_entropy", "-o", "out.npz", "--seq-len", "16", *flags]


@cases("[t.bin] expected uint16 tokens, got a file of 0 bytes")
def no_tokens(folder):
    return tokens(folder, [])


@cases("[t.bin] expected uint16 tokens, got a file of 67 bytes")
def half_a_token(folder):
    return tokens(folder, [1] * 67, dtype=np.uint8)


@cases("[t.bin] expected at least 16 + 1 tokens, got 16")
def shorter_than_a_window(folder):
    return tokens(folder, [1] * 16)


@cases("[t.bin] expected \"input_ids\" in 0…60, the rows of a weight that it looks up, got 60000 in sample 2, element 8")
def token_beyond_the_vocabulary(folder):
    return tokens(folder, [1] * 40 + [60000] + [1] * 40)


@cases("[t.bin] expected \"input_ids\" in 0…60, the rows of a weight that it looks up, got 4464 in sample 0, element 2")
def tokens_of_another_type(folder):
    return tokens(folder, [1, 70000] * 40, dtype=np.uint32)


def ids(folder, *flags, **changes):
    rows = np.ones((4, 16), np.int64)
    for (sample, element), value in changes.get("at", {}).items():
        rows[sample, element] = value
    np.savez(folder / "t.npz", input_ids=rows, labels=np.ones_like(rows))
    return ["grad", GPT, "--data", "t.npz", "--loss", "cross_entropy", "-o", "out.npz", *flags]


# PyTorch refuses a negative token, too. ONNX counts a negative index from the end.
@cases('[t.npz] expected "input_ids" in 0…60, the rows of a weight that it looks up, got -1 in sample 3, element 7')
def negative_token(folder):
    return ids(folder, at={(3, 7): -1})


@cases('[t.npz] expected rows of 8 elements (--seq-len) in "labels", got rows of 16; only token files are cut')
def length_of_arrays(folder):
    return ids(folder, "--seq-len", "8")


@cases("[t.bin] expected a sequence length (--seq-len) for token files")
def tokens_without_a_length(folder):
    return tokens(folder, [1] * 40)[:-2]


@cases("--eod needs --segment-ids", code=2)
def ends_of_documents_without_segments(folder):
    return tokens(folder, [1] * 40, "--eod", "5")


@cases('[t.bin] provides one input and the label "labels", expected', "segment_ids; --eod tells where documents end")
def segments_without_ends_of_documents(folder):
    return tokens(folder, [1] * 40, "--segment-ids", "segment_ids")


@cases("--segment-ids: expected an input of integers with the axes of batch and sequence, got x of float", code=2)
def segments_of_floats(folder):
    return using(folder, "good.npz") + ["--segment-ids", "x"]


@cases("expected attention, which --segment-ids keeps to the documents of a row, got none")
def segments_without_attention(folder):
    npz(folder, segment_ids=np.zeros((BATCH, 5), np.int32))
    return using(folder) + ["--segment-ids", "segment_ids"]


@cases("[t.bin] holds tokens, but input \"x\" is of float")
def tokens_for_a_model_of_floats(folder):
    (folder / "t.bin").write_bytes(bytes(80))
    return using(folder, "t.bin") + ["--seq-len", "5"]


@cases("[t.bin, good.npz] expected token files (.bin) or arrays, got both")
def tokens_and_arrays(folder):
    (folder / "t.bin").write_bytes(bytes(80))
    return using(folder, "t.bin") + ["--data", "good.npz"]
