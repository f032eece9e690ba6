# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: what `onnx_fp8.torch.export` writes about a module, and what it says."""
import copy
import dataclasses
import os
import tempfile
import warnings

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

FOLDER = tempfile.TemporaryDirectory()
PATH = FOLDER.name + "/model.onnx"


def export(module, example, **options):
    """The notes, the record and the file's tensors."""
    before = copy.deepcopy(module.state_dict())
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", onnx_fp8.Note)
        onnx_fp8.torch.export(module, example, PATH, **options)
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[key]), f"{key} of the module has changed"
    model = onnx.load(PATH)
    onnx.checker.check_model(model)
    for note in notes:
        assert note.filename == __file__, note.filename
    return [str(note.message) for note in notes], onnx_fp8.torch.record(PATH), {t.name: t for t in model.graph.initializer}


class Everything(nn.Module):
    """A tensor of each kind."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, padding_idx=3)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)  # equal, but two
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.matrix = nn.Parameter(torch.randn(8, 8))
        self.prelu, self.norm = nn.PReLU(), nn.BatchNorm1d(8)
        self.scale, self.power = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))
        self.register_buffer("kept", torch.linspace(1, 2, 8))
        self.register_buffer("lost", torch.linspace(2, 3, 8), persistent=False)
        self.plain = torch.linspace(3, 4, 8)

    def forward(self, ids):
        x = self.first(self.table(ids)) + self.second(self.table(ids))
        x = self.prelu(self.frozen(x) @ self.matrix.T) * self.kept * self.lost / self.plain
        x = self.norm(x.transpose(1, 2)).transpose(1, 2) * self.scale
        return self.head((x.abs() + 1) ** self.power)


def check_kinds(exporter, training):
    module = Everything().train(training)
    with torch.no_grad():
        module.norm.running_mean += 0.25
    notes, record, held = export(module, torch.randint(0, 20, (3, 5)), exporter=exporter)
    assert not notes, notes
    assert record["version"] == 1 and record["exporter"] == exporter and record["separate"] is True
    assert record["tied"] == [["table.weight", "head.weight"]], record["tied"]
    entries = {entry["key"]: (name, entry) for name, entry in record["tensors"].items() if "key" in entry}
    parameters = dict(module.named_parameters(remove_duplicate=False))
    [table] = {"table.weight", "head.weight"} & entries.keys()
    assert entries.keys() >= parameters.keys() - {"table.weight", "head.weight"}, parameters.keys() - entries.keys()
    for key, (name, entry) in entries.items():
        if entry["kind"] != "parameter":
            continue
        assert entry["requires_grad"] is not key.startswith("frozen."), entry
        assert entry["shape"] == list(parameters[key].shape) and "transposed" not in entry, entry
        assert name == key, name
        assert np.array_equal(numpy_helper.to_array(held[name]), parameters[key].detach().numpy()), name
    assert [key for key, (_, entry) in entries.items() if "padding_idx" in entry] == [table]
    assert entries[table][1]["padding_idx"] == 3
    for key, persistent in (("kept", True), ("lost", False), ("norm.running_mean", True)):
        assert entries[key][1]["kind"] == "buffer" and entries[key][1]["persistent"] is persistent, entries[key]
    # Tracing moves statistics: the file has the module's.
    mean = numpy_helper.to_array(held["norm.running_mean"])
    assert np.array_equal(mean, module.norm.running_mean.numpy()), mean
    constants = [entry for entry in record["tensors"].values() if entry["kind"] == "constant" and entry["shape"] == [8]]
    assert len(constants) == 1, constants


def check_adapters():
    """What PEFT does: factors beside a frozen weight."""
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
            self.base.requires_grad_(False)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x))

    for exporter in ("dynamo", "torchscript"):
        _, record, _ = export(Adapted(), torch.randn(4, 16), exporter=exporter)
        frozen = {e["key"] for e in record["tensors"].values() if e["kind"] == "parameter" and not e["requires_grad"]}
        assert frozen == {"base.weight", "base.bias"}, frozen


class Smooth(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.layer, self.smoothing = nn.Linear(6, 5), smoothing

    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": F.cross_entropy(logits, labels, label_smoothing=self.smoothing), "logits": logits}


def check_differences():
    """PyTorch's exporter drops label_smoothing."""
    example = {"x": torch.randn(4, 6), "labels": torch.randint(0, 5, (4,))}
    assert export(Smooth(0.0), example)[0] == []
    [note] = export(Smooth(0.2), example)[0]
    assert "in evaluation mode the output loss differs from the module's: " in note, note
    model = onnx.load(PATH)
    assert [i.name for i in model.graph.input] == ["x", "labels"]
    assert [o.name for o in model.graph.output] == ["loss", "logits"]


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, ids, labels):
        return F.cross_entropy(self.head(self.table(ids)).flatten(0, 1), labels.flatten())


def check_one_tensor_twice():
    ids = torch.randint(0, 9, (2, 5))
    [note] = export(Joined(), (ids, ids))[0]
    assert note == ("`example_inputs`: labels is the same tensor as ids: it was copied, so that the file has two inputs"), note
    model = onnx.load(PATH)
    assert [[d.dim_param for d in i.type.tensor_type.shape.dim] for i in model.graph.input] == [["batch", "sequence"]] * 2
    assert [o.name for o in model.graph.output] == ["loss"]
    session = onnx_fp8.TrainingSession(PATH, loss="output:loss", optimizer="sgd", lr=0.1)
    losses = [session.step({"ids": ids, "labels": (ids + 1) % 9}).loss for _ in range(2)]
    assert losses[1] < losses[0]


def check_fixed_sizes():
    """The module computes with the size of the batch as a number of Python's."""
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x) * float(len(x))

    failed, fixed = export(Counted(), torch.randn(4, 4))[0]
    assert "torchscript wrote the file, because others could not: dynamo: " in failed, failed
    assert "its axes are open but it holds for the example's sizes alone" in fixed and "for x 3×4" in fixed, fixed
    assert export(Counted(), torch.randn(4, 4), dynamic_axes={})[0] == []


@dataclasses.dataclass
class Config:
    """What a Hugging Face model has."""
    use_cache: bool = True
    is_encoder_decoder: bool = True


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.config, self.table, self.head = Config(), nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, input_ids, attention_mask=None, labels=None):
        hidden = self.table(input_ids)
        outputs = {"logits": self.head(hidden), "hidden": (hidden,), "nothing": None, "encoder": {"hidden": hidden}}
        return outputs | ({"past": hidden} if self.config.use_cache else {})


def check_settings():
    module = Cached()
    _, _, _ = export(module, {"labels": torch.randint(0, 9, (2, 7)), "input_ids": torch.randint(0, 9, (2, 5)),
                              "attention_mask": None})
    assert module.config.use_cache and "forward" not in vars(module)
    model = onnx.load(PATH)
    assert [o.name for o in model.graph.output] == ["logits", "hidden.0"]
    assert "input_ids" in [i.name for i in model.graph.input]


class Angles(nn.Module):
    """A part whose buffer is computed from its configuration and is in no checkpoint."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("inverse", 10.0 ** -(torch.arange(8) / 8), persistent=False)

    def forward(self, x):
        return x * self.inverse


class Rates(nn.Module):
    """A part that has a buffer and no configuration."""

    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(size))
        self.register_buffer("rates", torch.linspace(1, 2, size), persistent=False)

    def forward(self, x):
        return x * self.rates + self.bias


class Encoder(nn.Module):
    """Its configuration makes the buffer of its part."""

    def __init__(self, config):
        super().__init__()
        self.config, self.parts = config, nn.ModuleList([Rates(8)])

    def forward(self, x):
        return self.parts[0](x)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.angles = nn.Embedding(20, 8), nn.LayerNorm(8), Angles(Config())
        self.encoder = Encoder(Config())
        self.frozen, self.head = nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.frozen.requires_grad_(False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.frozen(self.encoder(self.angles(self.norm(self.table(ids))))))


def check_weightless():
    """The file has no weights, and the module may have none; a checkpoint has a tied tensor under its first name."""
    module, ids = Large(), torch.randint(0, 20, (3, 5))
    with torch.device("meta"):
        empty = Large()
    with torch.no_grad():
        expected = module(ids).numpy()
    weights = FOLDER.name + "/weights.safetensors"
    save_file({key: tensor for key, tensor in module.state_dict().items() if key != "head.weight"}, weights)
    for own in (module, empty):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", onnx_fp8.Note)
            path = folder + "/model.onnx"
            onnx_fp8.torch.export(own, ids, path, weights=False)
            assert os.listdir(folder) == ["model.onnx"], os.listdir(folder)
            said = [str(note.message) for note in notes]
            assert said == ["[model.onnx] it was not compared with the module, because it has no weights"], said
            record = onnx_fp8.torch.record(path)
            assert record["tied"] == [["table.weight", "head.weight"]], record["tied"]
            session = onnx_fp8.TrainingSession(path, weights=weights, loss="cross_entropy", optimizer="sgd", lr=0.1)
            np.testing.assert_allclose(session.predict({"ids": ids})["logits"], expected, rtol=1e-4, atol=1e-5)
            trained = {p.name for p in session.parameters if p.trained}
            assert {"norm.weight", "norm.bias"} < trained and not any(name.startswith("frozen.") for name in trained), trained
            losses = [session.step({"ids": ids, "labels": (ids + 1) % 20}).loss for _ in range(2)]
            assert losses[1] < losses[0], losses
            assert not nn.Linear(2, 2).weight.is_meta


def check_weightless_errors():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 5)
            self.register_buffer("kept", torch.ones(5))

        def forward(self, x):
            return self.layer(x) * self.kept

    x = torch.randn(4, 6)
    with torch.device("meta"):
        empty, mixed = Kept(), Kept()
    mixed.layer.bias = nn.Parameter(torch.zeros(5))
    for module, options, text in (
            (empty, {}, "its parameters are on the meta device, which has no numbers: `weights=False`"),
            (empty, {"weights": False}, "kept is no parameter, so its numbers belong into the file"),
            (mixed, {"weights": False}, "all of its parameters on the meta device or none, got layer.bias elsewhere"),
            (Kept(), {"weights": False, "exporter": "torchscript"}, "`weights=False`: expected the exporter dynamo")):
        try:
            onnx_fp8.torch.export(module, x, PATH, **options)
        except onnx_fp8.OptionError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


class Namesakes(nn.Module):
    """A parameter and an argument have one name: PyTorch would write one tensor."""

    def __init__(self):
        super().__init__()
        self.x, self.unused = nn.Parameter(torch.randn(4)), nn.Linear(3, 3)

    def forward(self, x, *, scale=1.0):
        return x * self.x * scale, x.sum(-1)


def check_namesakes():
    for exporter in ("dynamo", "torchscript"):
        notes, record, held = export(Namesakes(), {"x": torch.randn(3, 4), "scale": 3.0}, exporter=exporter)
        assert not notes, notes
        assert record["tensors"]["x"]["key"] == "x" and list(held)[0] == "x", held
        model = onnx.load(PATH)
        assert [i.name for i in model.graph.input] == ["x_input"]
        assert [o.name for o in model.graph.output] == ["output_0", "output_1"]
    try:
        onnx_fp8.torch.export(Namesakes(), torch.randn(3, 4), PATH, input_names=["x"])
    except onnx_fp8.OptionError as error:
        assert "`input_names`: expected names that no parameter or buffer has, got x" in str(error), error
    else:
        raise AssertionError("a name of two tensors")


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return -gradient


class Stops(nn.Module):
    """PyTorch's backward pass gives `first` another gradient than the derivative of the forward pass."""

    def __init__(self, way):
        super().__init__()
        self.first, self.head, self.way = nn.Linear(6, 6), nn.Linear(6, 4), way

    def forward(self, x):
        return self.head(torch.tanh(self.way(self.first, x)))


def under_no_grad(layer, x):
    with torch.no_grad():
        return layer(x)


def check_gradients():
    """A file holds the forward pass alone. A note names parameters whose backward pass in PyTorch is another one."""
    x = torch.randn(5, 6)
    why = "the file can't tell where the module stops gradients or has its own"
    for way, text in ((lambda layer, x: layer(x), None),
                      (under_no_grad, "PyTorch gives no gradient to first.weight, first.bias, which the file trains: "),
                      (lambda layer, x: layer(x).detach(), "PyTorch gives no gradient to first.weight, first.bias"),
                      (lambda layer, x: layer(x) + (layer(x).round() - layer(x)).detach(),
                       "the gradient of first.weight, first.bias differs from the module's: "),
                      (lambda layer, x: Reversed.apply(layer(x)), "the gradient of first.weight, first.bias differs")):
        notes, _, _ = export(Stops(way), x)
        assert not notes if text is None else any(text in note and why in note for note in notes), (text, notes)
    ids = torch.randint(0, 9, (3, 4))
    for module, text in ((nn.Embedding(9, 6, scale_grad_by_freq=True), "the gradient of 0.weight differs"),
                         (nn.Embedding(9, 6, max_norm=0.5), "0 has max_norm=0.5: the file does not shorten its rows")):
        notes, _, _ = export(nn.Sequential(module, nn.Linear(6, 4)), ids)
        assert any(text in note for note in notes), notes
    notes, _, _ = export(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None)), x)
    assert any("1 has momentum=None, a mean over all batches" in note for note in notes), notes
    try:
        export(nn.Sequential(nn.LSTM(6, 8, proj_size=4)), x)
        assert False
    except onnx_fp8.Error as error:
        assert "0 is an LSTM with proj_size=4: ONNX's LSTM has no projection" in str(error), error
    # Frozen statistics beside others are no difference, and neither is dropout.
    frozen = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6), nn.BatchNorm1d(6))
    frozen[1].running_mean.fill_(0.5)
    frozen[1].eval()
    for module in (frozen, nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2))):
        notes, _, _ = export(module, x)
        assert not notes, notes


torch.manual_seed(0)
check_gradients()
check_namesakes()
for exporter in ("dynamo", "torchscript"):
    for training in (True, False):
        if (exporter, training) != ("dynamo", True):  # it keeps no BatchNorm in training mode
            check_kinds(exporter, training)
check_adapters()
check_differences()
check_one_tensor_twice()
check_fixed_sizes()
check_settings()
check_weightless()
check_weightless_errors()
