# SPDX-License-Identifier: Apache-2.0
"""ONNX models of any size, node by node as torch.onnx.export writes them, made
without PyTorch. Usage: python -m bench.graphs NAME FILE, where NAME is llama_7b
or one of LLAMA3."""
import contextlib
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ALIGNMENT = 4096  # of tensors in the external file, as in PyTorch's exporter


class Writer:
    """Collects nodes and weights. With `external` the weights are a sparse
    file of zeros beside the model (not written with `absent`), else small
    random numbers inside it."""

    def __init__(self, external=None, absent=False):
        self.nodes, self.weights = [], []
        self._module = ""
        self._external, self._end, self._absent = external, 0, absent
        self._random = numpy.random.default_rng(0)

    def node(self, op, *inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        node = helper.make_node(op, inputs, [name], f"node_{name}",
                                **attributes)
        if self._module:
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes",
                                    value=str(["", self._module, name]))
        self.nodes.append(node)
        return name

    @contextlib.contextmanager
    def module(self, name):
        """Nodes belong to this module, as PyTorch's exporter says it."""
        outer, self._module = self._module, name
        yield
        self._module = outer

    def ints(self, *values):
        return self.node("Constant", value_ints=values)

    def number(self, value):
        array = numpy.float32(value)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def weight(self, name, *shape):
        if self._external is None:
            values = self._random.normal(0, 0.02, shape).astype("f4")
            self.weights.append(numpy_helper.from_array(values, name))
            return name
        weight = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT,
                             data_location=TensorProto.EXTERNAL)
        size = 4 * int(numpy.prod(shape))
        for key, value in (("location", self._external.name),
                           ("offset", self._end), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
        self._end += -(-size // ALIGNMENT) * ALIGNMENT
        self.weights.append(weight)
        return name

    def linear(self, x, name, inputs, outputs):
        weight = self.weight(f"{name}.weight", outputs, inputs)
        return self.node("MatMul", x,
                         self.node("Transpose", weight, perm=[1, 0]))

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs,
                                  self.weights)
        onnx.save(helper.make_model(
            graph, ir_version=10, producer_name="onnx_fp8 bench",
            opset_imports=[helper.make_opsetid("", 18)]), path)
        if self._external is not None and not self._absent:
            with open(self._external, "wb") as file:
                file.truncate(self._end)


class Llama:
    """A decoder with rotary positions, causal attention, RMSNorm, SwiGLU. A
    head of keys and values serves heads / keys heads of queries."""

    def __init__(self, w, layers, width, hidden, heads, vocabulary, keys=None):
        self.w, self.layers = w, layers
        self.width, self.hidden, self.heads = width, hidden, heads
        self.vocabulary, self.head = vocabulary, width // heads
        self.keys = keys or heads

    def norm(self, x, name):
        w = self.w
        mean = w.node("ReduceMean", w.node("Pow", x, w.number(2)), w.ints(-1),
                      keepdims=1)
        root = w.node("Sqrt", w.node("Add", mean, w.number(1e-5)))
        normal = w.node("Mul", x, w.node("Reciprocal", root))
        return w.node("Mul", w.weight(f"{name}.weight", self.width), normal)

    def shape(self, *sizes):
        """A shape whose parts are names of values or numbers."""
        w = self.w
        parts = [w.node("Reshape", s, w.ints(-1)) if isinstance(s, str)
                 else w.ints(s) for s in sizes]
        return w.node("Concat", *parts, axis=0)

    def split_heads(self, x, heads):
        w = self.w
        shape = self.shape(self.batch, self.seq, heads, self.head)
        return w.node("Transpose", w.node("Reshape", x, shape, allowzero=1),
                      perm=[0, 2, 1, 3])

    def repeat(self, x):
        """(batch, keys, seq, head) for all heads of queries."""
        if self.keys == self.heads:
            return x
        w, times = self.w, self.heads // self.keys
        many = self.shape(self.batch, self.keys, times, self.seq, self.head)
        x = w.node("Expand", w.node("Unsqueeze", x, w.ints(2)), many)
        return w.node("Reshape", x, self.shape(
            self.batch, self.heads, self.seq, self.head), allowzero=1)

    def rotate(self, x):
        w, half = self.w, self.head // 2
        axis, step = w.ints(-1), w.ints(1)
        a = w.node("Slice", x, w.ints(0), w.ints(half), axis, step)
        b = w.node("Slice", x, w.ints(half), w.ints(2**63 - 1), axis, step)
        turned = w.node("Concat", w.node("Neg", b), a, axis=-1)
        return w.node("Add", w.node("Mul", x, self.cos),
                      w.node("Mul", turned, self.sin))

    def prepare(self):
        """Sizes, the rotation and the mask, once for all layers."""
        w = self.w
        self.batch, self.seq = (
            w.node("Squeeze", w.node("Shape", "input_ids", start=i, end=i + 1))
            for i in range(2))
        zero, one = (w.node("Constant", value=numpy_helper.from_array(
            numpy.int64(i))) for i in range(2))
        position = w.node("Range", zero, self.seq, one)
        row = w.node("Unsqueeze", position, w.ints(0))
        column = w.node("Unsqueeze", position, w.ints(1))
        hidden = w.node("Greater", row, column)
        self.mask = w.node("Where", hidden, w.number(-3.4e38), w.number(0))
        frequency = 10000.0 ** (-numpy.arange(0, self.head, 2) / self.head)
        frequency = w.node("Constant", value=numpy_helper.from_array(
            frequency.astype("f4")[None]))
        angle = w.node("Mul", w.node("Cast", column, to=TensorProto.FLOAT),
                       frequency)
        angle = w.node("Concat", angle, angle, axis=-1)
        self.cos, self.sin = w.node("Cos", angle), w.node("Sin", angle)

    def attention(self, y, name):
        w, width = self.w, self.width
        parts = []
        for part, heads in (("q", self.heads), ("k", self.keys),
                            ("v", self.keys)):
            with w.module(f"{name}.{part}_proj"):
                x = w.linear(y, f"{name}.{part}_proj", width,
                             heads * self.head)
            with w.module(f"{name}.heads"):
                x = self.split_heads(x, heads)
                x = x if part == "v" else self.rotate(x)
                parts.append(x if part == "q" else self.repeat(x))
        q, k, v = parts
        with w.module(name):
            kt = w.node("Transpose", k, perm=[0, 1, 3, 2])
            scores = w.node("Mul", w.node("MatMul", q, kt),
                            w.number(self.head ** -0.5))
            p = w.node("Softmax", w.node("Add", scores, self.mask), axis=-1)
            y = w.node("Transpose", w.node("MatMul", p, v), perm=[0, 2, 1, 3])
            y = w.node("Reshape", y, self.shape(self.batch, self.seq, width),
                       allowzero=1)
        with w.module(f"{name}.o_proj"):
            return w.linear(y, f"{name}.o_proj", width, width)

    def mlp(self, y, name):
        w, parts = self.w, []
        for part in ("gate", "up"):
            with w.module(f"{name}.{part}_proj"):
                parts.append(w.linear(y, f"{name}.{part}_proj", self.width,
                                      self.hidden))
        gate, up = parts
        with w.module(f"{name}.act"):
            y = w.node("Mul", w.node("Mul", gate, w.node("Sigmoid", gate)), up)
        with w.module(f"{name}.down_proj"):
            return w.linear(y, f"{name}.down_proj", self.hidden, self.width)

    def layer(self, x, name):
        w = self.w
        with w.module(f"{name}.input_layernorm"):
            y = self.norm(x, f"{name}.input_layernorm")
        y = self.attention(y, f"{name}.self_attn")
        with w.module(name):
            x = w.node("Add", x, y)
        with w.module(f"{name}.post_attention_layernorm"):
            y = self.norm(x, f"{name}.post_attention_layernorm")
        y = self.mlp(y, f"{name}.mlp")
        with w.module(name):
            return w.node("Add", x, y)

    def write(self, path, nodes=0):
        """With `nodes`, as many layers as give about that number of nodes."""
        w = self.w
        self.prepare()
        x = w.node("Gather", w.weight("model.embed_tokens.weight",
                                      self.vocabulary, self.width),
                   "input_ids")
        done = 0
        while len(w.nodes) < nodes if nodes else done < self.layers:
            x = self.layer(x, f"model.layers.{done}")
            done += 1
        x = self.norm(x, "model.norm")
        w.linear(x, "lm_head", self.width, self.vocabulary)
        w.nodes[-1].output[0] = "logits"
        info = helper.make_tensor_value_info
        w.save(path, [info("input_ids", TensorProto.INT64, ["batch", "seq"])],
               [info("logits", TensorProto.FLOAT,
                     ["batch", "seq", self.vocabulary])])


def llama(path, nodes):
    """About `nodes` nodes in narrow layers."""
    Llama(Writer(), 0, 16, 32, 2, 32).write(path, nodes)


def save_rows(w, path):
    """A model of rows of 16 numbers, whose result is the last node's."""
    w.nodes[-1].output[0] = "y"
    info = helper.make_tensor_value_info
    w.save(path, [info("x", TensorProto.FLOAT, ["batch", 16])],
           [info("y", TensorProto.FLOAT, ["batch", 16])])


def mlp(path, nodes):
    """Linear layers and ReLU: of all models the most parameters per node."""
    w, x = Writer(), "x"
    while len(w.nodes) < nodes:
        name = f"layers.{len(w.nodes) // 4}"
        y = w.linear(x, name, 16, 16)
        x = w.node("Relu", w.node("Add", y, w.weight(f"{name}.bias", 16)))
    save_rows(w, path)


def shared(path, nodes):
    """A chain in which every node reads one of two values: a parameter or a
    constant."""
    w = Writer()
    parameter, constant = w.weight("weight", 16), w.number(0.5)
    x = "x"
    while len(w.nodes) < nodes:
        x = w.node("Add", w.node("Mul", x, constant), parameter)
    save_rows(w, path)


def llama_7b(path):
    """6.7 billion parameters in fp32: 27 GB, none of them on the disk."""
    path = pathlib.Path(path)
    w = Writer(path.with_name(path.name + ".data"))
    Llama(w, 32, 4096, 11008, 32, 32000).write(path)


# Layers, width, hidden, heads, vocabulary, heads of keys of Llama 3 (Grattafiori
# et al., "The Llama 3 Herd of Models", 2024, table 3).
LLAMA3 = {"llama3_8b": (32, 4096, 14336, 32, 128256, 8),
          "llama3_8b_4": (4, 4096, 14336, 32, 128256, 8),
          "llama3_8b_1": (1, 4096, 14336, 32, 128256, 8),
          "llama3_70b": (80, 8192, 28672, 64, 128256, 8),
          "llama3_405b": (126, 16384, 53248, 128, 128256, 8),
          "tiny": (2, 32, 64, 4, 64, 2)}  # for machines without a GPU


def llama3(name, path):
    """A model whose weights exist nowhere: `--init normal:0.02` draws them."""
    path = pathlib.Path(path)
    w = Writer(path.with_name(path.name + ".data"), absent=True)
    Llama(w, *LLAMA3[name]).write(path)


if __name__ == "__main__":
    if sys.argv[1] in LLAMA3:
        llama3(*sys.argv[1:])
    else:
        llama_7b(*sys.argv[2:])
