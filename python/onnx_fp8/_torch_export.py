# SPDX-License-Identifier: Apache-2.0
"""A module as a file: by the exporter of PyTorch that can write it, with the record of its parameters."""
import os
import re
import tempfile

import onnx
import torch

from . import _torch_call, _torch_check, _torch_record, _torch_weightless
from ._errors import Error, OptionError
from ._notes import note

# They name files of the machine that exported.
_PATHS = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")


def _dynamo(call, path, opset, strict):
    sizes = {}
    for name, example in zip(call.inputs, call.examples):
        for axis, label in call.axes.get(name, {}).items():
            if example.shape[axis] < 2:
                raise OptionError(f"`example_inputs`: expected 2 or more along axis {axis} of {name}, which is dynamic, "
                                  f"got {example.shape[axis]}: PyTorch would fix the axis at this size")
            # The user's axes and the batch must be open; PyTorch may find that a sequence has one length or a longest.
            open_axis = strict or label == "batch"
            sizes[label] = torch.export.Dim(label, min=1) if open_axis else torch.export.Dim.AUTO
    shapes = tuple({axis: sizes[label] for axis, label in call.axes.get(name, {}).items()} for name in call.inputs)
    program = torch.export.export(call.module, tuple(call.examples), dynamic_shapes=shapes, strict=False)
    # Its optimizer would transpose weights, which then lose their names, and fold BatchNorm away.
    program = torch.onnx.export(program, (), dynamo=True, optimize=False, opset_version=opset, verbose=False,
                                input_names=call.inputs, output_names=call.outputs)
    if call.leaves_out is None:
        program.save(path)
    else:
        import onnx_ir
        _torch_weightless.leave_out(program, call.leaves_out)
        onnx_ir.save(program.model, path)


def _torchscript(call, path, opset, strict):
    # PRESERVE: Dropout and BatchNorm stay as the module's own mode has them.
    torch.onnx.export(call.module, tuple(call.examples), path, dynamo=False, opset_version=opset,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, dynamic_axes=call.axes,
                      input_names=call.inputs, output_names=call.outputs)


_EXPORTERS = {"dynamo": (_dynamo, 18), "torchscript": (_torchscript, 17)}


def _shapes(model):
    for graph in _torch_record.bodies(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            yield from value.type.tensor_type.shape.dim


def _name_axes(model, axes):
    """Symbols of PyTorch (s77) get the names of the axes. Returns the axes that the exporter fixed."""
    symbols, fixed = {}, []
    for value in model.graph.input:
        for axis, label in axes.get(value.name, {}).items():
            dim = value.type.tensor_type.shape.dim[axis]
            if dim.dim_param:
                symbols[dim.dim_param] = label
            else:
                fixed.append(f"axis {axis} of {value.name} at {dim.dim_value}")
    if symbols:
        pattern = re.compile(r"\b(" + "|".join(map(re.escape, symbols)) + r")\b")
        for dim in _shapes(model):
            if dim.dim_param:
                dim.dim_param = pattern.sub(lambda found: symbols[found[0]], dim.dim_param)
    return fixed


def _refuse(module):
    """Parts of which PyTorch's exporter writes something else."""
    for path, child in module.named_modules():
        if isinstance(child, torch.nn.LSTM) and child.proj_size:
            raise OptionError(f"`module`: {path or 'the module'} is an LSTM with proj_size={child.proj_size}: ONNX's LSTM "
                              "has no projection, and PyTorch's exporter leaves it out")


def _lost_options(module):
    """Facts about parts that do more in PyTorch's training than a file says."""
    said = []
    for path, child in module.named_modules():
        if isinstance(child, _torch_call.EMBEDDINGS) and child.max_norm is not None:
            said.append(f"{path or 'the module'} has max_norm={child.max_norm:g}: the file does not shorten its rows")
        batch_norm = isinstance(child, torch.nn.modules.batchnorm._BatchNorm)
        if batch_norm and child.training and child.track_running_stats and child.momentum is None:
            said.append(f"{path or 'the module'} has momentum=None, a mean over all batches: ONNX has no such mode, and "
                        "the file's running statistics move by a fixed part of each batch")
    return said


def _finish(call, path, exporter):
    """Adds the record. Returns facts to say."""
    model = onnx.load(path, load_external_data=False)
    for graph in _torch_record.bodies(model.graph):
        for node in graph.node:
            for entry in [entry for entry in node.metadata_props if entry.key in _PATHS]:
                node.metadata_props.remove(entry)
    fixed = _name_axes(model, call.axes)
    lost = _torch_record.write(call.module, model, os.path.dirname(path), exporter)
    onnx.save(model, path)
    said = [f"PyTorch's exporter fixed {', '.join(fixed)}"] if fixed else []
    said += _lost_options(call.module)
    used = _torch_check.used(call, lost) if lost else []
    if used:
        said.append(f"the file lacks parameters that the module uses, and does not train them: {', '.join(used)}")
    return said


def _first_line(error):
    """PyTorch wraps the error that tells the reason."""
    while isinstance(error, torch.onnx.OnnxExporterError) and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _normalizes_by_batch(module):
    return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training for m in module.modules())


def _order(module, exporter, weights):
    """The exporters to try. Only torchscript keeps BatchNorm in training mode, and only dynamo needs no weights."""
    if exporter is not None:
        if exporter not in _EXPORTERS:
            raise OptionError(f"`exporter`: expected dynamo or torchscript, got {exporter}")
        if exporter == "torchscript" and not weights:
            raise OptionError("`weights=False`: expected the exporter dynamo, got torchscript, which writes weights")
        return [exporter]
    if not weights:
        return ["dynamo"]
    return ["torchscript", "dynamo"] if _normalizes_by_batch(module) else ["dynamo", "torchscript"]


def _write(call, path, exporter, opset, strict):
    """By the first of the module's settings that works. Returns them, or None, and the failures."""
    write, default = _EXPORTERS[exporter]
    failures = []
    for way in _torch_call.ways_to_compute(call.module):
        try:
            with _torch_call.computing(call.module, way), _torch_call.as_it_was(call.module), \
                    _torch_call.ready(call), _torch_call.quiet():
                write(call, path, opset or default, strict)
            return way, failures
        except OptionError:
            raise
        except Exception as error:  # PyTorch's exporters raise whatever they met
            failures.append(f"{_named(exporter, way)}: {_first_line(error)}")
    return None, failures


def _named(exporter, way):
    return " ".join([exporter, *(f"{part}_implementation={name!r}" for part, name in way.items())])


def _call(module, example_inputs, input_names, output_names, weights):
    """The call that is exported, of a module without numbers on the meta device."""
    called = module
    if _torch_weightless.is_on_meta(module):
        if weights:
            raise OptionError("`module`: its parameters are on the meta device, which has no numbers: `weights=False` "
                              "exports it without them")
        called, example_inputs = _torch_weightless.on_meta(module, example_inputs)
    call = _torch_call.Call(called, example_inputs, input_names, output_names)
    call.leaves_out = None if weights else module
    return call


def _unchecked(module):
    """Facts about a file without weights, which nothing compares with the module."""
    said = ["it was not compared with the module, because it has no weights"]
    if _normalizes_by_batch(module):
        said.append("dynamo wrote its BatchNorm in evaluation mode: `batch_norm=train` trains it")
    return said


def export(module, example_inputs, path, input_names, output_names, dynamic_axes, exporter, opset, check, weights):
    _refuse(module)
    call = _call(module, example_inputs, input_names, output_names, weights)
    call.name_outputs()
    exporters = _order(module, exporter, weights)
    strict = dynamic_axes is not None
    call.axes = _torch_call.given_axes(call, dynamic_axes) if strict else _torch_call.default_axes(call)
    path = os.path.abspath(os.fspath(path))
    name, target = os.path.basename(path), os.path.dirname(path)
    # Beside `path`: external data have the model's name.
    with tempfile.TemporaryDirectory(prefix=".onnx_fp8.", dir=target) as folder:
        best, failures = None, []
        for exporter in exporters:
            own = os.path.join(folder, exporter)
            os.mkdir(own)
            way, failed = _write(call, os.path.join(own, name), exporter, opset, strict)
            failures += failed
            if way is None:
                continue
            facts = _finish(call, os.path.join(own, name), exporter)
            differences = _torch_check.differences(call, os.path.join(own, name)) if check and weights else []
            if best is None or not differences:
                if best is not None:
                    failures.append(f"{best[0]}: {best[3][0]}")
                best = _named(exporter, way), own, facts, differences, bool(failures or way)
            if not differences:
                break
        if best is None:
            raise Error("[module] PyTorch can't export it.\n" + "\n".join(failures))
        writer, own, facts, differences, decided = best
        for file in os.listdir(own):
            os.replace(os.path.join(own, file), os.path.join(target, file))
    if decided:
        reason = f", because others could not: {'; '.join(failures)}" if failures else ""
        facts.insert(0, f"{writer} wrote the file{reason}")
    if check and not weights:
        facts += _unchecked(module)
    for text in facts + differences:
        note(f"[{name}] {text}")
