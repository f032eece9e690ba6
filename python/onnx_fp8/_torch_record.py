# SPDX-License-Identifier: Apache-2.0
"""The record of a module's parameters in an exported file (docs/formats.md): which tensor of the file is which of the
module, and what PyTorch does with it."""
import json
import operator
import os

import onnx
import torch
from onnx import numpy_helper

from ._torch_call import EMBEDDINGS

KEY = "onnx_fp8.parameters"
_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}


def _place(tensor):
    """Tied tensors have one place. Without numbers they have no address."""
    if tensor.is_meta or not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _persistent(module, key):
    path, _, name = key.rpartition(".")
    return name not in module.get_submodule(path)._non_persistent_buffers_set


class _Own:
    """The module's own tensors, by key."""

    def __init__(self, module):
        self.module = module
        self.parameters = dict(module.named_parameters(remove_duplicate=False))
        self.tensors = self.parameters | dict(module.named_buffers(remove_duplicate=False))
        groups = {}
        for key, tensor in self.tensors.items():
            groups.setdefault(_place(tensor), []).append(key)
        self.tied = {key: group for group in groups.values() for key in group}
        self.padding = {}
        for path, child in module.named_modules(remove_duplicate=False):
            if isinstance(child, EMBEDDINGS) and child.padding_idx is not None:
                for key in self.tied.get(f"{path}.weight" if path else "weight", []):
                    self.padding[key] = child.padding_idx

    def entry(self, key, transposed):
        entry = {"key": key}
        if key in self.parameters:
            entry |= {"kind": "parameter", "requires_grad": self.parameters[key].requires_grad}
        else:
            entry |= {"kind": "buffer", "persistent": _persistent(self.module, key)}
        if key in self.padding:
            entry["padding_idx"] = self.padding[key]
        if transposed:
            entry["transposed"] = True
        return entry

    def constant(self, name):
        """The key of a tensor that is neither, a plain attribute for instance."""
        try:
            return {"key": name} if isinstance(operator.attrgetter(name)(self.module), torch.Tensor) else {}
        except AttributeError:
            return {}


def bodies(graph):
    """The graph and the bodies of its nodes, however deep."""
    graphs = [graph]
    for each in graphs:
        yield each
        graphs += [g for node in each.node for a in node.attribute
                   for g in ([a.g] if a.HasField("g") else a.graphs)]


def _rename(graph, names):
    for each in bodies(graph):
        for node in each.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        for output in each.output:
            output.name = names.get(output.name, output.name)


def _separate(graph, own):
    """PyTorch's TorchScript exporter keeps one of several equal tensors and writes Identity nodes for the others, which
    are parameters of their own unless they are tied."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        if node.op_type != "Identity" or node.input[0] not in held:
            continue
        source, key = node.input[0], node.output[0]
        if key in own.tensors and source not in own.tied[key]:
            copy = graph.initializer.add()
            copy.CopyFrom(held[source])
            copy.name = key
            graph.node.remove(node)


def _array(tensor, folder):
    return torch.from_numpy(numpy_helper.to_array(tensor, base_dir=folder).copy())


def _same(key, tensor, own, folder):
    """Whether the file's tensor is the module's: "same", "transposed" or None. Elements that are all equal tell nothing."""
    if own.tensors[key].is_meta:
        return None
    ours = own.tensors[key].detach().cpu()
    if tuple(tensor.dims) not in (tuple(ours.shape), tuple(ours.shape[::-1])) or ours.unique().numel() < 2:
        return None
    if torch.bfloat16 == ours.dtype or tensor.data_type == onnx.TensorProto.BFLOAT16:  # numpy has none
        return None
    array = _array(tensor, folder)
    if array.dtype != ours.dtype:
        return None
    if array.shape == ours.shape and torch.equal(array, ours):
        return "same"
    return "transposed" if ours.dim() == 2 and torch.equal(array, ours.T) else None


def _constant_nodes(graph):
    return {node.output[0]: (node, a.t) for node in graph.node if node.op_type == "Constant"
            for a in node.attribute if a.name == "value" and a.t.data_type in _FLOATS}


def _by_value(graph, found, own, folder):
    """Keys of tensors whose names the exporter lost: where one tensor of the file and one of the module agree, and no
    others do."""
    candidates = {t.name: t for t in graph.initializer if t.name not in found and t.data_type in _FLOATS}
    candidates |= {name: t for name, (_, t) in _constant_nodes(graph).items()}
    done = {other for key, _ in found.values() for other in own.tied[key]}
    missing = {own.tied[key][0] for key in own.tensors if key not in done}
    fits = {name: [(key, how) for key in missing if (how := _same(key, t, own, folder))]
            for name, t in candidates.items()}
    readers = [key for keys in fits.values() for key, _ in keys]
    return {name: (keys[0][0], keys[0][1] == "transposed") for name, keys in fits.items()
            if len(keys) == 1 and readers.count(keys[0][0]) == 1}


def _hold(graph, found, own):
    """Parameters that the exporter wrote as Constant nodes become initializers under their keys."""
    nodes, taken = _constant_nodes(graph), {t.name for t in graph.initializer}
    names = {}
    for name, (key, transposed) in list(found.items()):
        if name not in nodes or key not in own.parameters:
            continue
        node, tensor = nodes[name]
        names[name] = key if key not in taken and not transposed else name
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = names[name]
        graph.node.remove(node)
        found[names[name]] = found.pop(name)
    _rename(graph, names)


def _restore(graph, own):
    """Tracing runs the module, which moves BatchNorm's statistics in the file."""
    for tensor in graph.initializer:
        ours = own.tensors.get(tensor.name)
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if ours is None or ours.is_meta or tensor.name in own.parameters or external:
            continue
        if tuple(tensor.dims) == tuple(ours.shape) and ours.dtype != torch.bfloat16:  # numpy has none
            tensor.CopyFrom(numpy_helper.from_array(ours.detach().cpu().numpy(), tensor.name))


def write(module, model, folder, exporter) -> list[str]:
    """Puts the record into the model, whose external data lie in `folder`, and makes the file say what it says: an
    initializer for each parameter. Returns the keys of parameters that the file does not hold."""
    graph, own = model.graph, _Own(module)
    _separate(graph, own)
    _restore(graph, own)
    found = {}  # by name in the file: key, transposed
    for tensor in graph.initializer:
        ours = own.tensors.get(tensor.name)
        if ours is not None:
            dims, shape = tuple(tensor.dims), tuple(ours.shape)
            if dims == shape or dims == shape[::-1]:
                found[tensor.name] = tensor.name, dims != shape
    found |= _by_value(graph, found, own, folder)
    _hold(graph, found, own)
    held = {t.name: t for t in graph.initializer} | {name: t for name, (_, t) in _constant_nodes(graph).items()}
    tensors = {}
    for name, tensor in held.items():
        if name in found:
            tensors[name] = own.entry(*found[name])
        elif tensor.data_type in _FLOATS:
            tensors[name] = own.constant(name) | {"kind": "constant"}
        else:
            continue
        tensors[name]["shape"] = list(tensor.dims)
    tied = {id(group): group for key, group in own.tied.items() if len(group) > 1 and key in own.parameters}
    record = {"version": 1, "exporter": exporter, "tensors": tensors, "tied": list(tied.values()), "separate": True}
    for entry in [entry for entry in model.metadata_props if entry.key == KEY]:
        model.metadata_props.remove(entry)
    model.metadata_props.add(key=KEY, value=json.dumps(record, separators=(",", ":")))
    done = {other for key, _ in found.values() for other in own.tied[key]}
    return [key for key in own.parameters if key not in done and own.tied[key][0] == key]


def read(path) -> dict:
    """The record of a file, or {}."""
    model = onnx.load(os.fspath(path), load_external_data=False)
    return next((json.loads(entry.value) for entry in model.metadata_props if entry.key == KEY), {})
