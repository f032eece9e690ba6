# SPDX-License-Identifier: Apache-2.0
"""External data that is missing, too short, or outside the model's folder."""
import os

import numpy as np
from onnx import TensorProto, helper

from bad_input.case import Cases, inspect, model, save, tensors, weights

CASES = cases = Cases()


def external(location, offset=None, length=None):
    """The good model with its w in another file, which is not written here."""
    weight = TensorProto(name="w", dims=[5, 3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    return model(initializers=[weight, *tensors({"b": weights()["b"]})])


def w_bytes():
    return weights()["w"].tobytes()


@cases("[m.onnx w] expected external data inside the model's folder, got location \"../gone.bin\"")
def outside_and_missing(folder):
    return inspect(external("../gone.bin"), folder)


@cases("[m.onnx w] expected 60 bytes for shape [5,3], got length 59")
def missing_with_another_length(folder):
    return inspect(external("w.bin", length=59), folder)


@cases("[m.onnx w] expected external data inside the model's folder, got location \"\"")
def no_location(folder):
    return inspect(external(None), folder)


@cases("[m.onnx w] expected external data in w.bin", "expected a regular file, got a folder")
def location_is_a_folder(folder):
    (folder / "w.bin").mkdir()
    return inspect(external("w.bin"), folder)


@cases("[m.onnx w] expected 60 bytes from 0 on in w.bin, which holds 59")
def too_short(folder):
    (folder / "w.bin").write_bytes(w_bytes()[:-1])
    return inspect(external("w.bin"), folder)


@cases("[m.onnx w] expected 60 bytes from 0 on in w.bin, which holds 0")
def empty(folder):
    (folder / "w.bin").write_bytes(b"")
    return inspect(external("w.bin"), folder)


@cases("[m.onnx w] expected 60 bytes for shape [5,3], got length 56")
def length_that_is_not_the_shape(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    return inspect(external("w.bin", 0, 56), folder)


@cases("[m.onnx w] expected 60 bytes from 4096 on in w.bin, which holds 60")
def offset_behind_the_end(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    return inspect(external("w.bin", 4096), folder)


@cases("[m.onnx w] expected 60 bytes from 18446744073709551600 on in w.bin, which holds 60")
def offset_that_overflows(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    return inspect(external("w.bin", (1 << 64) - 16), folder)


@cases("[m.onnx w] expected external_data offset to be a number of bytes, got \"-60\"")
def negative_offset(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    return inspect(external("w.bin", -60), folder)


@cases("[m.onnx w] expected external_data length to be a number of bytes, got \"60 bytes\"")
def length_that_is_no_number(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    return inspect(external("w.bin", 0, "60 bytes"), folder)


# ---- outside the model's folder; the bytes are there and would fit

OUTSIDE = "expected external data inside the model's folder, got location"


def secret(folder):
    (folder.parent / "secret.bin").write_bytes(w_bytes())
    return folder.parent / "secret.bin"


@cases("[m.onnx w] " + OUTSIDE + " \"../secret.bin\"")
def parent_folder(folder):
    secret(folder)
    return inspect(external("../secret.bin"), folder)


@cases("[m.onnx w] " + OUTSIDE + " \"sub/../../secret.bin\"")
def parent_folder_in_the_middle(folder):
    secret(folder)
    (folder / "sub").mkdir()
    return inspect(external("sub/../../secret.bin"), folder)


@cases("[m.onnx w] " + OUTSIDE + " \"", "secret.bin\"")
def absolute_path(folder):
    return inspect(external(secret(folder)), folder)


@cases("[m.onnx w] expected external data with a file name, got a zero byte in it")
def zero_byte_in_the_path(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    return inspect(external("w.bin\0/../../secret.bin"), folder)


@cases("[m.onnx w] expected external data in w.bin: [w.bin] is a link, which may lead anywhere")
def link_to_a_file(folder):
    (folder / "w.bin").symlink_to(secret(folder))
    return inspect(external("w.bin"), folder)


@cases("[m.onnx w] expected external data in sub/secret.bin: [sub] is a link, which may lead anywhere")
def link_to_a_folder(folder):
    secret(folder)
    (folder / "sub").symlink_to("..")
    return inspect(external("sub/secret.bin"), folder)


@cases("[m.onnx w] expected external data in w.bin", "expected a regular file, got a device or pipe")
def pipe(folder):
    os.mkfifo(folder / "w.bin")
    return inspect(external("w.bin"), folder)


@cases("[Constant fixed] " + OUTSIDE + " \"../secret.bin\"")
def attribute_from_outside(folder):
    secret(folder)
    value = external("../secret.bin").graph.initializer[0]
    value.name = ""
    nodes = [helper.make_node("Constant", [], ["w"], "fixed", value=value),
             helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    return inspect(model(nodes=nodes, initializers=[]), folder)


@cases("[m.onnx w] " + OUTSIDE + " \"../secret.bin\"")
def rewritten_with_data_from_outside(folder):
    secret(folder)
    (folder / "to").mkdir()
    save(external("../secret.bin"), folder / "m.onnx")
    return ["rewrite", "m.onnx", "-o", "to/out.onnx", "--recipe", "tensorwise"]


@cases("[DIR/to/w.bin] would be replaced by the model's external data \"w.bin\": write to another folder")
def rewritten_over_a_foreign_file(folder):
    (folder / "w.bin").write_bytes(w_bytes())
    (folder / "to").mkdir()
    (folder / "to" / "w.bin").write_bytes(b"precious")
    save(external("w.bin"), folder / "m.onnx")
    return ["rewrite", "m.onnx", "-o", "to/out.onnx", "--recipe", "tensorwise"]


@cases("[DIR/to/out.onnx] is the place of the model's external data \"out.onnx\": write to another file")
def data_of_the_output_s_name(folder):
    (folder / "out.onnx").write_bytes(w_bytes())
    (folder / "to").mkdir()
    save(external("out.onnx"), folder / "m.onnx")
    return ["rewrite", "m.onnx", "-o", "to/out.onnx", "--recipe", "tensorwise"]


@cases("[DIR/w.onnx] is the place of the model's external data \"w.onnx\": write to another file")
def rewritten_over_its_data(folder):
    (folder / "w.onnx").write_bytes(w_bytes())
    save(external("w.onnx"), folder / "m.onnx")
    return ["rewrite", "m.onnx", "-o", "w.onnx", "--recipe", "tensorwise"]


def rewrite_to(folder, location):
    (folder / location).parent.mkdir(exist_ok=True)
    (folder / location).write_bytes(w_bytes())
    (folder / "to").mkdir()
    save(external(location), folder / "m.onnx")
    return ["rewrite", "m.onnx", "-o", "to/out.onnx", "--recipe", "tensorwise"]


LINK = "is a link, and loaders refuse external data behind links: write to another folder"


@cases("[DIR/to/w.bin] " + LINK)
def rewritten_beside_a_link(folder):
    command = rewrite_to(folder, "w.bin")
    (folder / "to" / "w.bin").symlink_to("../w.bin")
    return command


@cases("[DIR/to/w.bin] " + LINK)
def rewritten_beside_a_dangling_link(folder):
    command = rewrite_to(folder, "w.bin")
    (folder / "to" / "w.bin").symlink_to("none")
    return command


@cases("[DIR/to/sub] " + LINK)
def rewritten_beside_a_linked_folder(folder):
    command = rewrite_to(folder, "sub/w.bin")
    (folder / "elsewhere").mkdir()
    (folder / "to" / "sub").symlink_to("../elsewhere")
    return command


HIDDEN = "would be a hidden file, or in a hidden folder: external data are written under names without a dot at their"


@cases("[DIR/to/.bashrc] " + HIDDEN)
def rewritten_to_a_hidden_file(folder):
    return rewrite_to(folder, ".bashrc")


@cases("[DIR/to/.ssh/authorized_keys] " + HIDDEN)
def rewritten_into_a_hidden_folder(folder):
    return rewrite_to(folder, ".ssh/authorized_keys")


@cases("[DIR/run/model/.bashrc] " + HIDDEN)
def trained_with_a_hidden_file(folder):
    rewrite_to(folder, ".bashrc")
    np.savez(folder / "d.npz", x=np.zeros((4, 5), np.float32), labels=np.zeros(4, np.int64))
    return ["train", "m.onnx", "--data", "d.npz", "--loss", "cross_entropy", "--steps", "1",
            "--batch-size", "2", "--out", "run"]


@cases("[.out.onnx.data] " + HIDDEN)
def written_with_data_in_a_hidden_file(folder):
    rewrite_to(folder, "w.bin")
    return ["rewrite", "m.onnx", "-o", ".out.onnx", "--recipe", "tensorwise", "--external-data"]


@cases("[DIR/to/w.bin] would be replaced by the model's external data \"w.bin\": write to another folder")
def rewritten_beside_a_folder_of_the_name(folder):
    command = rewrite_to(folder, "w.bin")
    (folder / "to" / "w.bin").mkdir()
    return command


@cases("[m.onnx w] expected external data in w.bin", "No such file or directory")
def missing_file(folder):
    save(external("w.bin"), folder / "m.onnx")
    np.savez(folder / "d.npz", x=np.zeros((4, 5), np.float32), labels=np.zeros(4, np.int64))
    return ["train", "m.onnx", "--data", "d.npz", "--loss", "cross_entropy", "--steps", "1", "--out", "other"]
