# SPDX-License-Identifier: Apache-2.0
"""Small good inputs of each fuzz target, for the fuzzer to start from."""
import io
import json
import pathlib
import shutil
import struct
import zlib

import numpy as np
import onnx
import onnx.parser
from onnx.backend.test.loader import load_node_model_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_MODEL = 16384  # bytes


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(compress=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(file, **arrays)
    return file.getvalue()


def safetensors(tensors, metadata=None):
    """`tensors`: name → (dtype's name, array)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npz_seeds():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    labels = np.arange(4)
    yield npz(x=x, labels=labels)
    yield npz(compress=True, x=x, labels=labels)
    yield npz(x=np.asfortranarray(x).astype(">f8"), labels=labels, other=x > 3)
    yield npz(compress=True, x=x.astype(np.float16), labels=labels.astype("u1"))


def npy_seeds():
    for code in ("<f4", ">f4", "<f2", "<f8", "|b1", "<i8", ">u2", "|i1"):
        yield npy(np.arange(6).reshape(2, 3).astype(code))
    yield npy(np.asfortranarray(np.ones((2, 3, 4), np.float32)))
    yield npy(np.float32(3))
    yield npy(np.zeros((0, 3), np.int32))


def safetensors_seeds():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    yield safetensors({"a": ("F32", x), "b": ("BOOL", x > 2),
                       "c": ("F8_E4M3", x.astype("u1"))}, {"k": "v"})
    yield safetensors({"a": ("BF16", x.astype("u2")),
                       "": ("I64", x.astype("i8"))})
    yield safetensors({})


def tokens_seeds():
    tokens = np.arange(40, dtype="<u2").tobytes()
    for head in (b"\4\0\0\1", b"\3\0\1\7", b"\10\0\6\0", b"\1\0\2\377"):
        yield head + tokens


def json_seeds():
    yield json.dumps({"recipe": "tensorwise", "input": "dyn_ten_e4m3",
                      "amax_history": 16, "margin": 0, "fast_accumulation":
                      {"fwd": True}}).encode()
    yield b"i:dyn_ten_e4m3,w:dyn_row_e4m3_p2,go:del16_blk128x128_e5m2_floor"
    yield b"delayed,history:4,margin:2,algo:most_recent,tr:requantize,fa:none"
    yield b"rowwise,go_gw:hp,i_gw:dyn_blk32_e4m3,scales:e8m0,round:p2"
    yield json.dumps({"format": "onnx_fp8.scales", "version": 1,
                      "scales": {"w/forward/input/float8e4m3fn#0": 0.5}}).encode()
    yield json.dumps({"format": "onnx_fp8 gemm speeds 1", "m": [1, 2],
                      "k": [1], "n": [4, 8], "gflops": {
                          "fp32": [1, 2, 3, 4], "fp8": [1, 2, 3, 4]},
                      "quantize_gigaelements": 2.5}).encode()
    yield json.dumps({"format": "onnx_fp8 layer speedups 1", "m": [1, 2],
                      "k": [1], "n": [4, 8], "speedup": [0.5, 1, 2, 3],
                      "recipe": "tensorwise"}).encode()
    yield json.dumps([{"fqn": "w", "gemm": "forward", "operand": "input",
                       "format": "float8e4m3fn", "occurrence": 0,
                       "scaling": "static"}]).encode()
    yield json.dumps({"format": 1, "model": {"file": "model/m.onnx", "crc32":
                      "00000000"}, "flags": {"--lr": ["0.1"]}}).encode()
    yield b'{"step":1,"loss":0.5}\n{"step":2,"loss":null}\n{"st'


def checkpoint_seeds():
    w = np.zeros((16, 16), np.float32)
    slots = [{"fqn": "w", "gemm": "forward", "operand": operand,
              "format": "float8e4m3fn", "occurrence": 0}
             for operand in ("input", "weight")]
    state = safetensors({
        "w": ("F32", w), "b": ("F32", w[0]),
        "fp8.amax_history": ("F32", np.ones((16, 2), np.float32)),
        "fp8.scale": ("F32", np.ones(2, np.float32))})
    plain = safetensors({"w": ("F32", w), "b": ("F32", w[0])})
    for tensors, listed, recipe in ((state, slots, "delayed"),
                                    (plain, [], "off")):
        manifest = {
            "format": "onnx_fp8 checkpoint", "version": 1, "step": 2,
            "seed": 0, "next_batch": 2, "model": "", "state_bytes": 0,
            "notes": {"session.skipped": "0", "session.recipe": recipe,
                      "session.fp8_slots": json.dumps(listed)},
            "tensors": {}, "saved_at": ""}
        for mode in (b"sealed", b"as it is"):
            yield b"\n====\n".join(
                [mode, b"step_00000002\n", json.dumps(manifest).encode(),
                 tensors])


def weights_seeds():
    """FP8 codes with a scale of each kind, in one shard."""
    rng = np.random.default_rng(0)

    def codes(*shape):
        return rng.integers(0, 120, shape).astype(np.uint8)

    ones = np.ones
    tensors = {
        "a.weight": ("F8_E4M3", codes(3, 4)), "a.weight_scale": ("F32", np.float32(0.5)),
        "b.weight": ("F8_E5M2", codes(3, 4)), "b.weight_scale": ("F32", ones((3, 1), np.float32)),
        "c.weight": ("F8_E4M3", codes(5, 33)), "c.weight_scale_inv": ("F32", ones((2, 3), np.float32)),
        "d.weight": ("F8_E4M3", codes(2, 64)), "d.weight_scale": ("U8", ones((2, 2), np.uint8)),
        "e.weight": ("F8_E4M3", codes(130, 2)), "e.scale": ("F32", ones((2, 1), np.float32)),
        "bias": ("F32", ones(3, np.float32))}
    shard = safetensors(tensors)
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors, "a.safetensors")}
    for config in ({"quantization_config": {"weight_block_size": [4, 11]}},
                   {"quantization_config": {"config_groups": {"group_0": {"weights": {"block_structure": [4, 11]}}}}}):
        yield b"\n====\n".join([json.dumps(index).encode(), json.dumps(config).encode(), shard])


def adapter_seeds():
    """A layer's adapter and a parameter, with the settings that PEFT writes."""
    tensors = {
        "base_model.model.a.fc.lora_A.weight": ("F32", np.ones((2, 3), np.float32)),
        "base_model.model.a.fc.lora_B.weight": ("F16", np.ones((4, 2), np.float16)),
        "base_model.model.head.bias": ("F32", np.ones(4, np.float32))}
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "lora_dropout": 0.1, "use_rslora": True, "bias": "none",
              "target_modules": ["fc"], "rank_pattern": {}, "use_dora": False, "init_lora_weights": "gaussian"}
    yield b"\n====\n".join([json.dumps(config).encode(), safetensors(tensors)])


def command_line_seeds():
    for line in (
            "train m.onnx --data a.npz --loss mse --steps 3 --lr=0.1 "
            "--betas 0.9,0.99 --out run --recipe rowwise,go:dyn_row_e5m2_p2",
            "train m.onnx --data t.bin u.bin --seq-len 16 --epochs 2 "
            "--label ids --loss cross_entropy --schedule cosine:warmup=10,min=0.1",
            "train m.onnx --steps 1 --group *.bias=weight_decay:0,lr_scale:2 "
            "--recipe-for fc*=off --freeze * --train w,b --include a --exclude b",
            "train m.onnx --steps 2 --optimizer sgd --momentum 0.9 --nesterov "
            "--threads 2 --isa avx2 --recipe delayed,history:4,margin:-2 --grad-accum 2",
            "train --resume --out run --whole x,labels --no-shuffle --json",
            "train m.onnx --steps 2 --weights hub --rename model.*=* --rename a=b --init normal:0.02",
            "shape batch=4", "recipes --json", "recipes tensorwise", "ops",
            "version --json", "help train", "trian"):
        yield line.replace(" ", "\n").encode()


def external_model():
    """Its weight lies in data.bin, which the target provides."""
    w = onnx.TensorProto(name="w", data_type=1, dims=[16, 16],
                         data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "data.bin"), ("offset", "64"),
                       ("length", "1024")):
        w.external_data.add(key=key, value=value)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[N, 16] x) => '
        "(float[N, 16] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(w)
    return model


# Functions that call each other; control flow around products; a pattern of
# attention.
TEXTS = ("""
<ir_version: 8, opset_import: ["": 18, "local": 1]>
g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w = {
  1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}> {
  h = local.Layer <k: int = 1> (x, w)
  y = local.Layer <k: int = 1> (h, w)
}
<domain: "local", opset_import: ["": 18, "local": 1]>
Layer <k> (a, b) => (c) { d = MatMul(a, b) c = local.Act <axis: int = @k> (d) }
<domain: "local", opset_import: ["": 18]>
Act <axis> (a) => (c) { c = Softmax <axis: int = @axis> (a) }
""", """
<ir_version: 8, opset_import: ["": 18]>
g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w = {
  1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, int64 trips = {2},
  bool true = {1}, float zero = {0}> {
  s = ReduceSum <keepdims: int = 0> (x)
  c = Greater(s, zero)
  h = If (c) <then_branch = t () => (float[N, 4] u) { u = MatMul(x, w) },
              else_branch = e () => (float[N, 4] v) { v = Relu(x) }>
  y = Loop (trips, true, h) <body = b (int64 i, bool c_in, float[N, 4] z)
        => (bool c_out, float[N, 4] z_out)
        { c_out = Identity(c_in) z_out = MatMul(z, w) }>
}
""", """
<ir_version: 8, opset_import: ["": 18]>
g (float[N, 3, 4] x) => (float[N, 3, 4] y) <float[4, 4] w = {
  1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, int64[4] split =
  {0, 0, 2, 2}, int64[3] join = {0, 0, 4}, float scale = {0.5}> {
  h = MatMul(x, w)
  q0 = Reshape(h, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q0)
  k = Transpose <perm = [0, 2, 3, 1]> (q0)
  p = MatMul(q, k)
  m = Mul(p, scale)
  a = Softmax <axis: int = -1> (m)
  o = MatMul(a, q)
  t = Transpose <perm = [0, 2, 1, 3]> (o)
  y = Reshape(t, join)
}
""")


def model_seeds():
    yield external_model().SerializeToString()
    for text in TEXTS:
        yield onnx.parser.parse_model(text).SerializeToString()
    models = [case.model.SerializeToString() for case in load_node_model_tests()]
    models += [path.read_bytes() for path in sorted((ROOT / "tests/fixtures").glob("*/*.onnx"))]
    yield from (model for model in models if len(model) <= MAX_MODEL)


def ort_checkpoint_seeds():
    for path in sorted((ROOT / "tests/fixtures/ort_training").glob("*/checkpoint")):
        if path.stat().st_size <= MAX_MODEL:
            yield path.read_bytes()


def write(target, folder):
    """Makes `folder` hold the seeds of `target`, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed in globals()[f"{target}_seeds"]():
        (folder / f"{zlib.crc32(seed):08x}").write_bytes(seed)
