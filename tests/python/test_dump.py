# SPDX-License-Identifier: Apache-2.0
"""`--dump` and `compare`: tensors beside NumPy's, PyTorch's and a float step's; results that do not change."""
import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from program import FIXTURES, losses, reference, run, state_bytes, write_batch, write_random
from rank_jobs import need_mpi
from test_ranks import gpt_data, ranks

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]
DTYPES = {"F32": np.float32, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
          "F8_E8M0": ml_dtypes.float8_e8m0fnu}


def read(path):
    """The tensors of a file, and its metadata with `tensors` as a list."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    metadata["tensors"] = json.loads(metadata["tensors"])
    tensors = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        numbers = np.frombuffer(data[8 + size + begin:8 + size + end], DTYPES[item["dtype"]])
        tensors[name] = numbers.reshape(item["shape"])
    return tensors, metadata


def name_of(entry):
    use = "" if entry["use"] == 1 else f".{entry['use']}"
    return f"{entry['fqn']}/{entry['gemm']}{use}/{entry['operand']}/"


def decode(codes, scale, block):
    """As the format says: a scale for each block of a matrix, or one."""
    matrix = codes.astype(np.float32).reshape(-1, codes.shape[-1])
    scale = scale.astype(np.float32).reshape(-1, scale.shape[-1] if scale.ndim else 1)
    rows, columns = (size or axis for size, axis in zip(block, matrix.shape))
    spread = np.repeat(np.repeat(scale, rows, 0), columns, 1)[:matrix.shape[0], :matrix.shape[1]]
    return (matrix * spread).reshape(codes.shape)


def dump(model, data, folder, *flags, steps=1, at="1", layers="*", batch=16):
    run("train", model, "--data", data, *CE, "--batch-size", batch, "--steps", steps, "--no-shuffle", "--threads", 1,
        "--dump", layers, "--at-steps", at, "--out", folder, *flags)
    return folder / "dumps"


@pytest.mark.parametrize("recipe,more", [("tensorwise", []), ("rowwise_with_gw_hp", []), ("mxfp8", []),
                                         ("blockwise", ["--master", "split8"]), ("off", []),
                                         ("delayed", ["--primary-weights", "fp8", "--grad-accum", 1]),
                                         ("rowwise", ["--recompute", "blocks.*,*.fc", "--grad-accum", 1])])
def test_results_do_not_change(tmp_path, recipe, more):
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=4)
    flags = ["train", GPT, "--data", data, *CE, "--recipe", recipe, "--batch-size", 4, "--steps", 4, "--dtype",
             "bfloat16", "--threads", 1, *(more if "--grad-accum" in more else ["--grad-accum", 2, *more])]
    run(*flags, "--out", tmp_path / "off")
    run(*flags, "--out", tmp_path / "on", "--dump", "*", "--at-steps", "2,3")
    assert losses(tmp_path / "off") == losses(tmp_path / "on")
    assert state_bytes(tmp_path / "off") == state_bytes(tmp_path / "on")
    assert not (tmp_path / "off" / "dumps").exists()
    batches = [""] if "--grad-accum" in more else ["_batch_1", "_batch_2"]
    names = [f"step_{step}{batch}.safetensors" for step in (2, 3) for batch in batches]
    assert sorted(path.name for path in (tmp_path / "on" / "dumps").iterdir()) == sorted(names)
    _, metadata = read(tmp_path / "on" / "dumps" / names[-1])
    entries = metadata["tensors"]
    assert len({name_of(entry) for entry in entries}) == len(entries)
    assert {entry["use"] for entry in entries} == {1}
    assert {(entry["gemm"], entry["operand"]) for entry in entries} == {
        ("forward", "input"), ("forward", "weight"), ("forward", "output"), ("dgrad", "grad_output"),
        ("dgrad", "weight"), ("dgrad", "output"), ("wgrad", "input"), ("wgrad", "grad_output"), ("wgrad", "output")}


def test_chunks_of_the_last_layer_are_products(tmp_path):
    """A whole last layer would have other scales, so the step must stay in chunks."""
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=32)
    flags = ["train", GPT, "--data", data, *CE, "--recipe", "tensorwise", "--batch-size", 64, "--steps", 2,
             "--loss-chunk", 65536, "--threads", 1]
    run(*flags, "--out", tmp_path / "off")
    run(*flags, "--out", tmp_path / "on", "--dump", "lm_head*", "--at-steps", "1", "--what", "input,output")
    assert state_bytes(tmp_path / "off") == state_bytes(tmp_path / "on")
    tensors, metadata = read(tmp_path / "on" / "dumps" / "step_1.safetensors")
    inputs = [name_of(entry) for entry in metadata["tensors"]
              if (entry["gemm"], entry["operand"]) == ("forward", "input")]
    assert inputs == [f"lm_head.weight/forward{use}/input/" for use in ("", ".2", ".3", ".4")]
    assert sum(tensors[name + "codes"].shape[0] for name in inputs) == 64 * 16


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "blockwise", "mxfp8,scales:e8m0"])
def test_codes_decode_to_the_numbers_of_ml_dtypes(tmp_path, recipe):
    data = write_batch("nanogpt", tmp_path / "d.npz")
    folder = dump(GPT, data, tmp_path / "run", "--recipe", recipe, batch=4)
    tensors, metadata = read(folder / "step_1.safetensors")
    assert metadata["step"] == "1" and metadata["provider"] == "cpu"
    coded = 0
    for entry in metadata["tensors"]:
        name = name_of(entry)
        if entry["operand"] == "output":
            assert name + "codes" not in tensors
            continue
        value, codes, scale, decoded = (tensors.pop(name + part) for part in ("value", "codes", "scale", "decoded"))
        np.testing.assert_array_equal(decode(codes, scale, entry["block"]), decoded)
        # What was cast lies within half a step of a code (2^-4 of e4m3, 2^-3 of e5m2), or of the least ones.
        step = 2.0**-3 if codes.dtype == ml_dtypes.float8_e5m2 else 2.0**-4
        amax = np.abs(value).max()
        assert np.all(np.abs(value - decoded) <= step * np.abs(value) + 2.0**-9 * amax), name
        assert entry["format"] == codes.dtype.name.replace("_", "")
        coded += 1
    assert coded > 20
    assert all(name.endswith("/output/value") for name in tensors)


def test_a_step_is_the_arithmetic_of_its_dump(tmp_path):
    """Scales, codes and products of one scale for each tensor, by NumPy."""
    data = write_random(tmp_path / "d.npz", 16)
    folder = dump(MLP, data, tmp_path / "run", "--recipe", "tensorwise")
    tensors, metadata = read(folder / "step_1.safetensors")
    fc1 = "fc1.weight/forward/"
    np.testing.assert_array_equal(tensors[fc1 + "input/value"], np.load(data)["x"])
    for entry in metadata["tensors"]:
        if entry["operand"] == "output":
            continue
        name = name_of(entry)
        value, codes = tensors[name + "value"], tensors[name + "codes"]
        q_max = np.float64(57344 if codes.dtype == ml_dtypes.float8_e5m2 else 448)
        factor = np.float32(q_max / np.float64(np.abs(value).max()))
        assert tensors[name + "scale"] == np.float32(1) / factor
        np.testing.assert_array_equal((value * factor).astype(np.float32).astype(codes.dtype).view(np.uint8),
                                      codes.view(np.uint8))
    for layer in ("fc1", "fc2", "head"):
        def real(part):
            return tensors[f"{layer}.weight/{part}/decoded"].astype(np.float64)

        weight, x, g = real("forward/weight"), real("forward/input"), real("wgrad/grad_output")
        wgrad = tensors[f"{layer}.weight/wgrad/output/value"]
        made = x.T @ g if wgrad.shape == (x.shape[1], g.shape[1]) else g.T @ x
        np.testing.assert_allclose(wgrad, made, rtol=1e-5, atol=1e-6)
        y = tensors[f"{layer}.weight/forward/output/value"]
        product = x @ (weight if weight.shape[0] == x.shape[1] else weight.T)
        # The bias of a layer is 0 or more than the error of a sum; it is the same in all rows.
        np.testing.assert_allclose((y - product) - (y - product)[:1], 0, atol=1e-5)


def test_a_float_step_has_the_tensors_of_pytorch(tmp_path):
    """Without FP8 a wgrad is PyTorch's gradient. In FP8 the first tensors before casts are those of the float step."""
    data = write_batch("nanogpt", tmp_path / "d.npz")
    floats, metadata = read(dump(GPT, data, tmp_path / "off", batch=4) / "step_1.safetensors")
    torch = reference("nanogpt")
    seen = 0
    for name, value in floats.items():
        fqn, gemm, operand, _ = name.rsplit("/", 3)
        expected = torch.get("grad." + fqn)
        if (gemm, operand) != ("wgrad", "output") or expected is None:
            continue
        np.testing.assert_allclose(value if value.shape == expected.shape else value.T, expected, rtol=2e-4, atol=2e-6)
        seen += 1
    assert seen == 8
    outputs = [floats[name] for name in floats if name.endswith("forward/output/value")]
    logits = next(output for output in outputs if output.shape[-1] == 61)
    np.testing.assert_allclose(logits.reshape(-1, 61), torch["output.logits"].reshape(-1, 61), rtol=1e-4, atol=1e-5)
    assert not any("format" in entry for entry in metadata["tensors"])
    coded, _ = read(dump(GPT, data, tmp_path / "fp8", "--recipe", "tensorwise", batch=4) / "step_1.safetensors")
    for name in [name for name in floats if name.endswith("/forward/weight/value")]:
        np.testing.assert_array_equal(floats[name], coded[name])
    first = "blocks.0.c_attn.weight/forward/input/value"
    np.testing.assert_array_equal(floats[first].reshape(-1, 32), coded[first].reshape(-1, 32))
    for name in coded.keys() & floats.keys():  # the rest is near
        assert floats[name].shape == coded[name].shape, name
        scale = np.abs(floats[name]).max()
        assert np.abs(floats[name] - coded[name]).max() < 0.25 * scale, name


def test_layers_and_operands_are_chosen(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz")
    folder = dump(GPT, data, tmp_path / "run", "--recipe", "rowwise", "--what", "weight,output",
                  layers="blocks.1.*,*.0.fc.*", batch=4, steps=3, at="1,3")
    assert sorted(path.name for path in folder.iterdir()) == ["step_1.safetensors", "step_3.safetensors"]
    _, metadata = read(folder / "step_3.safetensors")
    assert {entry["fqn"] for entry in metadata["tensors"]} == {
        "blocks.0.fc.weight", *(f"blocks.1.{layer}.weight" for layer in ("c_attn", "c_proj", "fc", "proj"))}
    assert {entry["operand"] for entry in metadata["tensors"]} == {"weight", "output"}


def test_frozen_codes_have_no_value(tmp_path):
    data = write_random(tmp_path / "d.npz", 16)
    flags = ["--recipe", "rowwise", "--freeze", "*", "--train", "*bias*"]
    tensors, _ = read(dump(MLP, data, tmp_path / "run", *flags, "--frozen", "fp8") / "step_1.safetensors")
    others, _ = read(dump(MLP, data, tmp_path / "float", *flags) / "step_1.safetensors")
    codes = [name for name in tensors if name.endswith("/weight/codes")]
    assert codes
    for name in codes:
        assert name.replace("codes", "value") not in tensors
        assert tensors[name].tobytes() == others[name].tobytes()


# ---- compare

def compare(*arguments):
    return json.loads(run("compare", *arguments, "--json").stdout)


def test_two_recipes_part_at_the_first_scale(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz")
    for recipe in ("tensorwise", "rowwise"):
        dump(GPT, data, tmp_path / recipe, "--recipe", recipe, batch=4, steps=2, at="1,2")
    found = compare(tmp_path / "tensorwise", tmp_path / "rowwise")
    assert found["steps"] == [1, 2] and found["compared"] == len(found["tensors"]) > found["differing"] / 2
    assert found["only_a"] == found["only_b"] == []
    first = found["first"]
    assert name_of(first) == "blocks.0.c_attn.weight/forward/input/" and first["step"] == 1
    assert next(part["part"] for part in first["parts"] if part["differing"]) == "scale"
    a, b = (read(tmp_path / recipe / "dumps" / "step_2.safetensors")[0] for recipe in ("tensorwise", "rowwise"))
    numbers = 0
    for tensor in found["tensors"]:
        if tensor["step"] != 2:
            continue
        for part in tensor["parts"]:
            x, y = (dump[name_of(tensor) + part["part"]] for dump in (a, b))
            assert part["elements"] == x.size
            if x.dtype != y.dtype or x.size != y.size:
                assert part["differing"] == x.size and len(part["types"]) == 2
                continue
            bits = f"u{x.itemsize}"
            assert part["differing"] == (x.reshape(-1).view(bits) != y.reshape(-1).view(bits)).sum()
            if part["part"] == "codes":
                continue
            x, y = x.astype(np.float64).reshape(-1), y.astype(np.float64).reshape(-1)
            assert part["max_abs"] == np.abs(x - y).max()
            assert part["relative"] == pytest.approx(np.abs(x - y).max() / np.abs(x).max())
            if part["differing"]:
                assert part["sqnr"] == pytest.approx(10 * np.log10((x**2).sum() / ((x - y)**2).sum()))
            numbers += 1
    assert numbers > 50
    text = run("compare", tmp_path / "tensorwise", tmp_path / "rowwise").stdout
    assert "they part in step 1, micro-batch 1, at blocks.0.c_attn.weight/forward/input/scale: " in text
    assert "blocks.1.fc.weight" in text


def test_equal_runs_do_not_part(tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    for name in ("a", "b"):
        dump(MLP, data, tmp_path / name, "--recipe", "delayed", "--grad-accum", 2, steps=2, at="2")
    found = compare(tmp_path / "a" / "dumps", tmp_path / "b")
    assert found["differing"] == 0 and found["first"] is None and found["compared"] > 20
    assert {tensor["batch"] for tensor in found["tensors"]} == {1, 2}
    one = "dumps/step_2_batch_2.safetensors"
    assert compare(tmp_path / "a" / one, tmp_path / "b" / one)["differing"] == 0
    assert ", 0 differ" in run("compare", tmp_path / "a", tmp_path / "b").stdout


def test_a_changed_number_is_found(tmp_path):
    """One bit of one code, in a copy: nothing before it differs, and all of it is told."""
    data = write_random(tmp_path / "d.npz", 16)
    folder = dump(MLP, data, tmp_path / "a", "--recipe", "tensorwise")
    shutil.copytree(folder, tmp_path / "b")
    path = tmp_path / "b" / "step_1.safetensors"
    tensors, metadata = read(path)
    bytes_of = bytearray(path.read_bytes())
    size = int.from_bytes(bytes_of[:8], "little")
    header = json.loads(bytes_of[8:8 + size])
    begin = header["fc2.weight/dgrad/grad_output/codes"]["data_offsets"][0]
    bytes_of[8 + size + begin + 5] ^= 0x01
    path.write_bytes(bytes_of)
    found = compare(folder, tmp_path / "b")
    first = found["first"]
    assert (first["fqn"], first["gemm"], first["operand"]) == ("fc2.weight", "dgrad", "grad_output")
    parts = {part["part"]: part for part in first["parts"]}
    assert [parts[part]["differing"] for part in ("value", "scale", "codes", "decoded")] == [0, 0, 1, 1]
    codes = tensors["fc2.weight/dgrad/grad_output/codes"].reshape(-1)[5:6]
    other = (codes.view(np.uint8) ^ 1).view(codes.dtype)
    scale = tensors["fc2.weight/dgrad/grad_output/scale"]
    assert parts["decoded"]["max_abs"] == np.abs(codes.astype(np.float32) * scale - other.astype(np.float32) * scale)[0]
    assert found["differing"] == 1 and len(metadata["tensors"]) == found["compared"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Dumps of both models, and of one with two micro-batches."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_random(folder / "mlp.npz", 32)
    dump(MLP, data, folder / "mlp", "--recipe", "tensorwise", steps=2, at="2")
    dump(MLP, data, folder / "two", "--recipe", "tensorwise", "--grad-accum", 2)
    dump(MLP, data, folder / "small", "--recipe", "tensorwise", batch=8, steps=2, at="2")
    dump(GPT, write_batch("nanogpt", folder / "gpt.npz"), folder / "gpt", "--recipe", "tensorwise", batch=4)
    return folder


def refused(*arguments):
    done = run("compare", *arguments, code=1)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_dumps_that_can_not_be_compared_are_refused(runs, tmp_path):
    mlp, gpt = runs / "mlp", runs / "gpt"
    assert f"[{gpt}] expected dumps of the model of {mlp}, got some of a model with other" in refused(mlp, gpt)
    assert f"[{runs / 'two'}] expected one of the steps of {mlp}, 2, got 1" in refused(mlp, runs / "two")
    assert "expected 384 elements, as in the other dump, got 192: were their batches" in refused(mlp, runs / "small")
    half = tmp_path / "half.safetensors"
    whole = (mlp / "dumps" / "step_2.safetensors").read_bytes()
    half.write_bytes(whole[:-100])
    assert f"[{half}] expected {len(whole) - 100 - 8 - int.from_bytes(whole[:8], 'little') + 100} bytes of data, got" \
        in refused(mlp, half)
    half.write_bytes(whole[:100])
    assert f"[{half}] expected a safetensors header within 100 bytes" in refused(mlp, half)
    shutil.copytree(runs / "two", tmp_path / "two")
    (tmp_path / "two" / "dumps" / "step_1_batch_1.safetensors").unlink()
    assert "expected micro-batches 1 to 2 of step 1, got others: one is missing" in refused(mlp, tmp_path / "two")
    state = next((mlp / "checkpoints").glob("*/state.safetensors"))
    assert f"[{state}] expected a file that --dump wrote, got other safetensors" in refused(mlp, state)
    (tmp_path / "none").mkdir()
    assert f"[{tmp_path / 'none'}] expected files that --dump wrote, got none" in refused(mlp, tmp_path / "none")


def test_several_ranks_are_refused(tmp_path):
    need_mpi()
    done = ranks(2, "train", GPT, "--data", gpt_data(tmp_path / "d.npz"), *CE, "--batch-size", 4, "--steps", 2,
                 "--dump", "*", "--at-steps", "1", "--out", tmp_path / "run", mesh="dp=2", code=2)
    assert "--dump: expected one process, got several ranks of --mesh" in done.stderr
