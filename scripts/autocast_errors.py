# SPDX-License-Identifier: Apache-2.0
"""How exact PyTorch's autocast is: the bar for our 16-bit gradients.

  python scripts/autocast_errors.py [CORPUS] -o FILE

Runs the d18 files of the corpus op by op in PyTorch: in float64, in float32 and
under torch.autocast to bfloat16 and to float16. In float16 the loss is scaled by
65536, or by the largest power of two below with which the gradients are finite.
Writes the error of all gradients of a model against float64: the largest of
several draws, whose parameters differ a little.
In float32 the error must be tiny, which checks this interpreter. No converter
takes its place: onnx2torch 1.5.15 converts 3 of the 19 files; onnx2pytorch 0.6.0
computes all 19, but a gradient reaches only the weights of Gemm and Conv, which
it copies into modules, and weights as inputs fail in 15. Needs the packages of
scripts/requirements-bench.txt."""
import argparse
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {"bfloat16": (torch.bfloat16, 1.0), "float16": (torch.float16, 65536.0)}  # with the first loss scale
# Rounding errors are random. So the bar is the largest error of several draws.
DRAWS = 32
TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64}
# Ops with bodies, and losses that the files do not hold.
LEFT_OUT = {"cond_mlp": "If", "lstm_lm": "LSTM", "vae": "a loss of its own", "mlp_fp16": "weights of 16 bits",
            "mlp_dropout": "random masks", "mlp_bn": "BatchNorm by running statistics in this file",
            "resnet18_w16": "BatchNorm by running statistics in this file",
            "t5": "places in a table from a rounded logarithm, which differ in float64"}


def safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "BOOL": np.bool_, "F16": np.float16, "I32": np.int32}
    arrays = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[8 + size + begin:8 + size + end], kinds[entry["dtype"]])
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def ints(x):
    return [int(v) for v in x.reshape(-1).tolist()]


def reduce_axes(attrs, x):
    axes = ints(x[1]) if len(x) > 1 and x[1] is not None else attrs.get("axes")
    return axes or list(range(x[0].ndim)), bool(attrs.get("keepdims", 1))


def take_slice(attrs, x, starts, ends, axes=None, steps=None):
    starts, ends = ints(starts), ints(ends)
    axes = ints(axes) if axes is not None else range(len(starts))
    steps = ints(steps) if steps is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        places = list(range(x.shape[axis]))[slice(start, end if abs(end) < 2**62 else None, step)]
        x = x.index_select(axis, torch.tensor(places, dtype=torch.int64))
    return x


def reshape(x, shape, allowzero=0):
    sizes = [x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(ints(shape))]
    return x.reshape(sizes)


def pads(values):
    """ONNX's begins and ends as F.pad's pairs, last axis first."""
    half = len(values) // 2
    return [v for i in reversed(range(half)) for v in (values[i], values[i + half])]


def conv(attrs, x, w, b=None, transposed=False):
    rank = x.ndim - 2
    both = attrs.get("pads", [0] * 2 * rank)
    more = {"stride": attrs.get("strides", [1] * rank), "dilation": attrs.get("dilations", [1] * rank),
            "groups": attrs.get("group", 1)}
    if transposed:
        assert both[:rank] == both[rank:]
        return F.conv_transpose2d(x, w, b, padding=both[:rank], output_padding=attrs.get("output_padding", 0), **more)
    call = {1: F.conv1d, 2: F.conv2d}[rank]
    if both[:rank] == both[rank:]:
        return call(x, w, b, padding=both[:rank], **more)
    return call(F.pad(x, pads(both)), w, b, **more)


def pool(attrs, x, kind):
    rank = x.ndim - 2
    both = attrs.get("pads", [0] * 2 * rank)
    more = {"kernel_size": attrs["kernel_shape"], "stride": attrs.get("strides", [1] * rank), "padding": both[:rank],
            "ceil_mode": bool(attrs.get("ceil_mode", 0))}
    if kind == "max":
        return F.max_pool2d(x, **more)
    return F.avg_pool2d(x, **more, count_include_pad=bool(attrs.get("count_include_pad", 0)))


def gemm(attrs, a, b, c=None):
    a = a.T if attrs.get("transA") else a
    alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    if alpha == 1 and beta == 1 and c is not None and c.ndim == 1:
        return F.linear(a, b if attrs.get("transB") else b.T, c)
    y = alpha * (a @ (b.T if attrs.get("transB") else b))
    return y if c is None else y + beta * c


def cumsum(attrs, x, axis):
    assert not attrs.get("exclusive") and not attrs.get("reverse")
    return torch.cumsum(x, int(axis))


def gather(attrs, x, index):
    axis = attrs.get("axis", 0)
    index = torch.where(index < 0, index + x.shape[axis], index)
    if axis == 0 and x.ndim == 2 and x.is_floating_point():
        return F.embedding(index, x)
    y = x.index_select(axis, index.reshape(-1))
    return y.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1:]])


def gather_nd(attrs, x, index):
    assert not attrs.get("batch_dims")
    return x[tuple(index.unbind(-1))]


def scatter(attrs, x, index, updates):
    axis, how = attrs.get("axis", 0), attrs.get("reduction", "none")
    index = torch.where(index < 0, index + x.shape[axis], index)
    updates = updates.to(x.dtype)
    return x.scatter_add(axis, index, updates) if how == "add" else x.scatter(axis, index, updates)


def scatter_nd(attrs, x, index, updates):
    add = attrs.get("reduction", "none") == "add"
    return x.index_put(tuple(index.unbind(-1)), updates.to(x.dtype), accumulate=add)


def divide(attrs, a, b):
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def expand(attrs, x, shape):
    return x.expand(torch.broadcast_shapes(x.shape, ints(shape)))


def resize(attrs, x, roi=None, scales=None, sizes=None):
    factors = scales.tolist()[2:] if scales is not None and scales.numel() else None
    to = ints(sizes)[2:] if sizes is not None else None
    mode = {"nearest": "nearest", "linear": "bilinear"}[attrs.get("mode", "nearest")]
    more = {} if mode == "nearest" else {"align_corners": attrs.get("coordinate_transformation_mode") == "align_corners"}
    return F.interpolate(x, size=to, scale_factor=factors, mode=mode, **more)


def split_to_sequence(attrs, x, sizes=None):
    axis = attrs.get("axis", 0)
    if sizes is None:
        return list(x.split(1, axis))
    return list(x.split(ints(sizes) if sizes.ndim else int(sizes), axis))


def norm(attrs, x, scale, bias=None):
    axis = attrs.get("axis", -1) % x.ndim
    shape = x.shape[axis:]
    return F.layer_norm(x, shape, scale, bias, attrs.get("epsilon", 1e-5))


def trilu(attrs, x, k=None):
    k = int(k) if k is not None else 0
    return torch.triu(x, k) if attrs.get("upper", 1) else torch.tril(x, k)


def reduction(call):
    def run(attrs, *x):
        axes, keep = reduce_axes(attrs, x)
        return call(x[0], axes, keep)
    return run


def product(x, axes, keep):
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def loss_op(attrs, x, labels):
    return F.cross_entropy(x, labels, ignore_index=attrs.get("ignore_index", -100), reduction=attrs.get("reduction", "mean"))


OPS = {
    "Abs": lambda a, x: x.abs(), "Add": lambda a, x, y: x + y, "And": lambda a, x, y: x & y,
    "AveragePool": lambda a, x: pool(a, x, "mean"), "MaxPool": lambda a, x: pool(a, x, "max"),
    "CastLike": lambda a, x, y: x.to(y.dtype), "Celu": lambda a, x: F.celu(x, a.get("alpha", 1.0)),
    "Clip": lambda a, x, low=None, high=None: x.clamp(low, high), "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Conv": conv, "ConvTranspose": lambda a, *x: conv(a, *x, transposed=True), "Cos": lambda a, x: x.cos(),
    "CumSum": cumsum, "Div": divide, "Dropout": lambda a, x, *more: x,
    "Einsum": lambda a, *x: torch.einsum(a["equation"], *x), "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Equal": lambda a, x, y: x == y, "Erf": lambda a, x: x.erf(), "Exp": lambda a, x: x.exp(), "Expand": expand,
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)), "Gather": gather, "GatherND": gather_nd, "Gemm": gemm,
    "GlobalAveragePool": lambda a, x: F.adaptive_avg_pool2d(x, 1), "Greater": lambda a, x, y: x > y,
    "GreaterOrEqual": lambda a, x, y: x >= y, "HardSigmoid": lambda a, x: F.hardsigmoid(x),
    "HardSwish": lambda a, x: F.hardswish(x), "Identity": lambda a, x: x,
    "InstanceNormalization": lambda a, x, w, b: F.instance_norm(x, weight=w, bias=b, eps=a.get("epsilon", 1e-5)),
    "IsNaN": lambda a, x: x.isnan(), "LayerNormalization": norm,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)), "Less": lambda a, x, y: x < y,
    "LessOrEqual": lambda a, x, y: x <= y, "Log": lambda a, x: x.log(), "MatMul": lambda a, x, y: x @ y,
    "Max": lambda a, *x: torch.maximum(*x) if len(x) == 2 else x[0],
    "Min": lambda a, *x: torch.minimum(*x) if len(x) == 2 else x[0], "Mish": lambda a, x: F.mish(x),
    "Mul": lambda a, x, y: x * y, "Neg": lambda a, x: -x, "Not": lambda a, x: ~x,
    "PRelu": lambda a, x, w: torch.where(x < 0, x * w, x),
    "Pad": lambda a, x, p, value=None, axes=None: F.pad(x, pads(ints(p)), a.get("mode", "constant"),
                                                        float(value) if value is not None else 0),
    "Pow": lambda a, x, y: x.pow(y), "Range": lambda a, x, y, z: torch.arange(x.item(), y.item(), z.item(), dtype=x.dtype),
    "Reciprocal": lambda a, x: x.reciprocal(), "ReduceL2": reduction(lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k)),
    "ReduceLogSumExp": reduction(lambda x, d, k: x.logsumexp(d, k)), "ReduceMax": reduction(lambda x, d, k: x.amax(d, k)),
    "ReduceMean": reduction(lambda x, d, k: x.mean(d, k)), "ReduceProd": reduction(product),
    "ReduceSum": reduction(lambda x, d, k: x.sum(d, k)), "Relu": lambda a, x: F.relu(x),
    "Reshape": lambda a, x, s: reshape(x, s, a.get("allowzero", 0)), "Resize": resize, "ScatterElements": scatter,
    "ScatterND": scatter_nd, "Selu": lambda a, x: F.selu(x), "SequenceAt": lambda a, x, i: x[int(i)],
    "Shape": lambda a, x: torch.tensor(x.shape)[a.get("start", 0):a.get("end")], "Sigmoid": lambda a, x: x.sigmoid(),
    "Sin": lambda a, x: x.sin(), "Slice": take_slice, "Softmax": lambda a, x: x.softmax(a.get("axis", -1)),
    "SoftmaxCrossEntropyLoss": loss_op, "Softplus": lambda a, x: F.softplus(x), "SplitToSequence": split_to_sequence,
    "Sqrt": lambda a, x: x.sqrt(), "Squeeze": lambda a, x, d=None: x.squeeze() if d is None else x.squeeze(ints(d)),
    "Sub": lambda a, x, y: x - y, "Tanh": lambda a, x: x.tanh(),
    "TopK": lambda a, x, k: tuple(x.topk(int(k), a.get("axis", -1), bool(a.get("largest", 1)))),
    "Transpose": lambda a, x: x.permute(a["perm"]), "Trilu": trilu, "Where": lambda a, c, x, y: torch.where(c, x, y),
    "Unsqueeze": lambda a, x, d: unsqueeze(x, ints(d)),
    "Split": lambda a, x, sizes=None: x.split(ints(sizes) if sizes is not None else -(-x.shape[a.get("axis", 0)]
                                                                                      // a["num_outputs"]), a.get("axis", 0)),
}


def unsqueeze(x, axes):
    rank = x.ndim + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


class Model:
    """A file, with its floats in `dtype`."""

    def __init__(self, path, names, dtype):
        self.graph = onnx.load(path).graph
        self.dtype = dtype
        self.values = {t.name: self.tensor(t) for t in self.graph.initializer}
        self.parameters = {}
        for name in names:
            self.parameters[name] = self.values[name] = self.values[name].clone().requires_grad_()

    def perturb(self, seed):
        """Changes the parameters by about 0.4 %, so that other numbers are rounded; 0: not at all."""
        if seed == 0:
            return
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters.values():
                noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float32)
                parameter *= 1 + 2.0**-8 * noise.to(parameter.dtype)

    def tensor(self, proto):
        return self.real(torch.from_numpy(numpy_helper.to_array(proto).copy()))

    def real(self, x):
        return x.to(self.dtype) if x.is_floating_point() else x

    def biases(self):
        """{output of a MatMul: the bias that the next node adds}: such a pair was one F.linear before the export."""
        readers = {}
        for node in self.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        found = {}
        for node in self.graph.node:
            after = readers.get(node.output[0], [])
            if node.op_type != "MatMul" or len(after) != 1 or after[0].op_type != "Add":
                continue
            [other] = set(after[0].input) - {node.output[0]} or [None]
            if other in self.values and self.values[other].ndim == 1:
                found[node.output[0]] = other
        return found

    def run(self, feeds):
        biases = self.biases()
        values = {**self.values, "": None, **{k: self.real(torch.from_numpy(v.copy())) for k, v in feeds.items()}}
        for node in self.graph.node:
            x = [values[name] for name in node.input]
            attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            attrs = {k: v.decode() if isinstance(v, bytes) else v for k, v in attrs.items()}
            if node.op_type == "Constant":
                [(key, value)] = attrs.items()
                y = self.tensor(value) if key == "value" else self.real(torch.tensor(value))
            elif node.output[0] in biases:
                y = F.linear(x[0], x[1].T, values[biases[node.output[0]]])
            elif node.op_type == "Add" and any(name in biases for name in node.input):
                y = x[0] if node.input[0] in biases else x[1]
            elif node.op_type == "Cast":
                y = self.cast(x[0], attrs["to"])
            elif node.op_type == "BatchNormalization":
                y = F.batch_norm(x[0], x[3].clone(), x[4].clone(), x[1], x[2], bool(attrs.get("training_mode")),
                                 eps=attrs.get("epsilon", 1e-5))
            else:
                y = OPS[node.op_type](attrs, *x)
            for name, value in zip(node.output, y if isinstance(y, tuple) else (y,)):
                values[name] = value
        return [values[output.name] for output in self.graph.output]

    def cast(self, x, to):
        return x.to(self.dtype if to in (1, 11) else TYPES[to])


def loss_of(kind, outputs, labels):
    y = outputs[0]
    if kind == "in_graph":
        return y
    if kind == "mse":
        return F.mse_loss(y.float() if y.dtype.itemsize < 4 else y, labels.to(y.dtype))
    if kind == "bce":
        return F.binary_cross_entropy_with_logits(y, labels.to(y.dtype))
    return F.cross_entropy(y.flatten(0, -2), labels.flatten(), ignore_index=-100)


def gradients(folder, reference, arrays, names, seed, dtype, autocast=None, scale=1.0):
    model = Model(folder / "d18.onnx", names, dtype)
    model.perturb(seed)
    feeds = {i.name: arrays[f"input.{i.name}"] if f"input.{i.name}" in arrays else arrays[f"label.{i.name}"]
             for i in model.graph.input if i.name not in model.values}
    labels = arrays.get(f"label.{reference['labels'][0]}") if reference["labels"] else None
    labels = torch.from_numpy(labels.copy()) if labels is not None else None
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        loss = loss_of(reference["loss_kind"], model.run(feeds), labels)
    found = torch.autograd.grad(loss * scale, list(model.parameters.values()), allow_unused=True)
    return {name: (g if g is not None else torch.zeros_like(p)).double() / scale
            for (name, p), g in zip(model.parameters.items(), found)}


def error(got, exact):
    """The relative error of all gradients of a model together."""
    total = sum((got[name] - g).norm()**2 for name, g in exact.items()) / sum(g.norm()**2 for g in exact.values())
    return float(total**0.5)


def autocast_error(run, exact, dtype, scale):
    """The error of one draw, and the loss scale; None: not finite with any scale."""
    while scale >= 1:
        got = run(torch.float32, dtype, scale)
        if all(g.isfinite().all() for g in got.values()):
            return error(got, exact), scale
        scale /= 2
    return None


def measure(folder):
    reference = json.loads((folder / "reference.json").read_text())
    arrays = safetensors(folder / "reference.safetensors")
    held = json.loads((folder / "d18.params.json").read_text())
    names = {h["name"]: fqn for fqn, h in held.items() if h["name"] and f"grad.{fqn}" in arrays}

    def runner(seed):
        return lambda dtype, autocast=None, scale=1.0: gradients(folder, reference, arrays, names, seed, dtype, autocast,
                                                                 scale)

    exact = runner(0)(torch.float64)
    single = error(runner(0)(torch.float32), exact)
    assert single < 1e-4, f"{folder.name}: float32 differs by {single}"
    largest = max(g.norm() for g in exact.values())
    for name, fqn in names.items():
        want = torch.from_numpy(arrays[f"grad.{fqn}"].copy()).double()
        if held[fqn]["how"] in ("same", "renamed"):
            assert (exact[name] - want).norm() <= 1e-3 * max(want.norm(), 1e-3 * largest), (folder.name, fqn)
    found = {}
    for kind, (dtype, scale) in DTYPES.items():
        draws = []
        for seed in range(DRAWS):
            run = runner(seed)
            draw = autocast_error(run, run(torch.float64), dtype, scale)
            if draw is None:
                break
            draws.append(draw[0])
            scale = draw[1]
        found[kind] = {"loss_scale": scale, "error": float(f"{max(draws):.4g}")} if len(draws) == DRAWS else None
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=pathlib.Path, default=ROOT.parent / "shared/corpus")
    parser.add_argument("-o", "--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    report = {"torch": torch.__version__, "left_out": LEFT_OUT, "models": {}}
    for path in sorted(args.corpus.glob("*/d18.onnx")):
        name = path.parent.name
        if name in LEFT_OUT:
            continue
        report["models"][name] = found = measure(path.parent)
        print(name, *(f"{kind} {e and e['error']}" for kind, e in found.items()), flush=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
