# SPDX-License-Identifier: Apache-2.0
"""Rewritten models whose weights lie in other files: in the model's own folder the files stay as they are; a model in
another folder gets copies."""
import json
import os
import resource

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data
from program import FIXTURES, run, start
from stock import stock_session

ONE, SPLIT = ["w.bin"], ["w.bin", "parts/a.bin", "parts/deep/b.bin"]
RECIPE = ["--recipe", "tensorwise"]


def write_model(folder, files=ONE):
    """The mlp with its weights in `files`, in turn. Returns the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load(FIXTURES / "mlp/d18.onnx")
    for i, tensor in enumerate(model.graph.initializer):
        set_external_data(tensor, files[i % len(files)])
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def references(path):
    """Where each initializer of the file has its data."""
    model = onnx.load(path, load_external_data=False)
    return {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data}


def outputs(path):
    session = stock_session(path)
    x = np.random.default_rng(0).normal(size=(4, 24)).astype(np.float32)
    return session.run(None, {"x": x})


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Outputs of the rewritten model that holds its weights itself."""
    path = tmp_path_factory.mktemp("expected") / "fp8.onnx"
    run("rewrite", FIXTURES / "mlp/d18.onnx", "-o", path, *RECIPE)
    return outputs(path)


def check(rewritten, model, expected):
    assert references(rewritten) == references(model) != {}
    np.testing.assert_array_equal(outputs(rewritten), expected)


@pytest.mark.parametrize("names", [ONE, SPLIT], ids=["one", "split"])
def test_own_folder_keeps_the_data_where_they_are(names, tmp_path, expected):
    model = write_model(tmp_path, names)
    before = files(tmp_path)
    times = {name: (tmp_path / name).stat() for name in names}
    done = run("rewrite", model, "-o", tmp_path / "fp8.onnx", *RECIPE)
    after = files(tmp_path)
    assert after.pop("fp8.onnx") and after == before
    for name, stat in times.items():
        now = (tmp_path / name).stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_nlink) == (stat.st_ino, stat.st_mtime_ns, 1)
    assert done.stderr == ""  # neither copied nor compared
    check(tmp_path / "fp8.onnx", model, expected)


@pytest.mark.parametrize("names", [ONE, SPLIT], ids=["one", "split"])
@pytest.mark.parametrize("to", ["to", "model/to"])
def test_other_folder_gets_copies(names, to, tmp_path, expected):
    model = write_model(tmp_path / "model", names)
    before = files(tmp_path)
    (tmp_path / to).mkdir()
    done = run("rewrite", model, "-o", tmp_path / to / "fp8.onnx", *RECIPE)
    total = sum(len(before[f"model/{name}"]) for name in names)
    for name in names:
        assert files(tmp_path / to)[name] == before[f"model/{name}"]
        assert not (tmp_path / to / name).is_symlink() and (tmp_path / to / name).stat().st_nlink == 1
    assert len(files(tmp_path / to)) == len(names) + 1
    assert f"copying to {tmp_path / to / sorted(names)[0]}  0 B of {total / 1024:.2f} KiB\n" in done.stderr
    check(tmp_path / to / "fp8.onnx", model, expected)


def test_data_that_are_there_already_stay(tmp_path, expected):
    model = write_model(tmp_path / "model")
    (tmp_path / "to").mkdir()
    run("rewrite", model, "-o", tmp_path / "to/a.onnx", *RECIPE)
    before = (tmp_path / "to/w.bin").stat()
    done = run("rewrite", model, "-o", tmp_path / "to/b.onnx", *RECIPE)
    assert f"comparing with {tmp_path}/to/w.bin" in done.stderr and "copying" not in done.stderr
    after = (tmp_path / "to/w.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    check(tmp_path / "to/b.onnx", model, expected)


def test_other_data_of_the_same_size_are_not_replaced(tmp_path):
    model = write_model(tmp_path / "model", SPLIT)
    (tmp_path / "to").mkdir()
    precious = bytearray((tmp_path / "model/w.bin").read_bytes())
    precious[-1] ^= 1
    (tmp_path / "to/w.bin").write_bytes(precious)
    done = run("rewrite", model, "-o", tmp_path / "to/fp8.onnx", *RECIPE, code=1)
    assert f'[{tmp_path}/to/w.bin] would be replaced by the model\'s external data "w.bin"' in done.stderr
    assert files(tmp_path / "to") == {"w.bin": bytes(precious)}  # and no other file is copied before that is known


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path):
    """To the program, a limit on the size of files is like a full disk."""
    model = write_model(tmp_path / "model")
    (tmp_path / "to").mkdir()
    limit = (tmp_path / "model/w.bin").stat().st_size - 100
    done = run("rewrite", model, "-o", tmp_path / "to/fp8.onnx", *RECIPE, code=1,
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert f"[{tmp_path}/to/w.bin] can't be written: File too large" in done.stderr
    assert files(tmp_path / "to") == {}


def test_a_run_keeps_a_copy_of_the_data(tmp_path):
    model = write_model(tmp_path / "model", SPLIT)
    np.savez(tmp_path / "d.npz", x=np.zeros((8, 24), np.float32), labels=np.zeros(8, np.int64))
    run("train", model, "--data", tmp_path / "d.npz", "--loss", "cross_entropy", "--steps", 1, "--batch-size", 4,
        "--out", tmp_path / "run")
    assert files(tmp_path / "run/model") == files(tmp_path / "model")


def write_holes(path, width, layers):
    """A chain of square products of `width`, whose weights are one hole beside it."""
    info, size = onnx.helper.make_tensor_value_info, 4 * width * width
    nodes = [onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"product{i}") for i in range(layers)]
    graph = onnx.helper.make_graph(nodes, "g", [info("x0", 1, ["batch", width])],
                                   [info(f"x{layers}", 1, ["batch", width])])
    for i in range(layers):
        weight = graph.initializer.add(name=f"w{i}", dims=[width, width], data_type=1, data_location=1)
        for key, value in (("location", "w.bin"), ("offset", i * size), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    with open(path.parent / "w.bin", "wb") as file:
        file.truncate(layers * size)
    return layers * size


def test_a_file_larger_than_memory_is_looked_at(tmp_path):
    """Nothing reads the weights: they are a hole of 4 TiB, which no machine could hold, or copy byte by byte."""
    size = write_holes(tmp_path / "m.onnx", 1 << 20, 1)
    assert size == 4 << 40
    (tmp_path / "to").mkdir()
    run("inspect", tmp_path / "m.onnx")
    for out in (tmp_path / "fp8.onnx", tmp_path / "to/fp8.onnx"):
        run("rewrite", tmp_path / "m.onnx", "-o", out, *RECIPE)
        assert (out.parent / "w.bin").stat().st_size == size
        assert (out.parent / "w.bin").stat().st_blocks < 100


def test_a_forecast_takes_none_of_the_memory_that_it_forecasts(tmp_path):
    size = write_holes(tmp_path / "m.onnx", 1 << 14, 2)
    assert size == 2 << 30
    process = start("inspect", tmp_path / "m.onnx", "--json", "--shape", "batch=1", "--optimizer", "adamw", *RECIPE)
    memory = json.loads(process.stdout.read())["memory"]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert memory["parameters"] == size and memory["moments"] == 2 * size
    assert usage.ru_maxrss * 1024 < size / 4
