# SPDX-License-Identifier: Apache-2.0
"""How a module is called for its export: its inputs and outputs by name, and the settings of Hugging Face's models."""
import contextlib
import inspect
import io
import logging
import warnings
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ._errors import OptionError
from ._notes import note
from ._torch_weightless import is_on_meta


@contextlib.contextmanager
def quiet():
    """PyTorch's exporters print what they do, and whole graphs when they fail."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), \
            contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            with mock.patch.object(torch._C, "_jit_onnx_log", lambda *_: None):
                yield
        finally:
            logging.disable(before)


EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def _wrapped(module):
    """The module whose forward pass tells the names of the inputs: not PEFT's own."""
    return module.get_base_model() if hasattr(module, "get_base_model") else module


def _parameter_names(module, count):
    names = []
    for parameter in inspect.signature(_wrapped(module).forward).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return [names[i] if i < len(names) else f"input_{i}" for i in range(count)]


def _tensors(name, value):
    """(name, tensor) of everything in `value`."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from _tensors(f"{name}.{i}" if name else f"output_{i}", item)


def _named(outputs):
    """(name, tensor) of what a forward pass returns. A mapping's own tensors have its keys; what it nests deeper
    (a cache, the whole output of an encoder) is left out."""
    if isinstance(outputs, torch.Tensor):
        return [("logits" if outputs.dim() else "loss", outputs)]
    if hasattr(outputs, "items"):
        return [pair for key, value in outputs.items() if not hasattr(value, "items")
                for pair in _tensors(str(key), value)]
    if hasattr(outputs, "_fields"):
        return [pair for key, value in zip(outputs._fields, outputs) for pair in _tensors(key, value)]
    return list(_tensors("", outputs))


def _without_numbers(module):
    """A context in which a module on the meta device can run. With fake tensors, modules that would read numbers skip that,
    as in a trace."""
    if is_on_meta(module):
        return FakeTensorMode(allow_non_fake_inputs=True)
    return contextlib.nullcontext()


class Call:
    """The tensors of one example by their names in the file, and how the module takes them."""

    def __init__(self, module, example_inputs, input_names, output_names):
        self.module = module
        self.axes = {}
        self.leaves_out = None  # the user's module, if the file is to have no weights
        self._forward = module.forward  # its own: `patched` replaces it
        self._options = {}
        if hasattr(example_inputs, "items"):
            self._options = {key: value for key, value in example_inputs.items() if not isinstance(value, torch.Tensor)}
            given = {key: value for key, value in example_inputs.items() if isinstance(value, torch.Tensor)}
            self._keys, self.examples = list(given), list(given.values())
        else:
            self._keys = None
            self.examples = [example_inputs] if isinstance(example_inputs, torch.Tensor) else list(example_inputs)
        for i, example in enumerate(self.examples):
            if not isinstance(example, torch.Tensor):
                raise OptionError(f"`example_inputs`: expected tensors, got {type(example).__name__} at {i}; a dict may "
                                  "have other values, by the names of the module's arguments")
        if not self.examples:
            raise OptionError("`example_inputs`: expected a tensor or more, got none")
        # One name in a file is one tensor.
        self._held = {name for name, _ in [*module.named_parameters(remove_duplicate=False),
                                           *module.named_buffers(remove_duplicate=False)]}
        own = self._keys or _parameter_names(module, len(self.examples))
        self.inputs = list(input_names or (f"{name}_input" if name in self._held else name for name in own))
        if len(self.inputs) != len(self.examples):
            raise OptionError(f"`input_names`: expected {len(self.examples)}, one for each example, got {len(self.inputs)}")
        self._separate()
        self.outputs = list(output_names) if output_names else None
        for option, names in (("input_names", self.inputs), ("output_names", self.outputs or [])):
            for name in self._held.intersection(names):
                raise OptionError(f"`{option}`: expected names that no parameter or buffer has, got {name}")

    def _separate(self):
        """PyTorch joins inputs that are one tensor."""
        for i, example in enumerate(self.examples):
            first = next(j for j, other in enumerate(self.examples) if other is example)
            if first < i:
                self.examples[i] = example.clone()
                note(f"`example_inputs`: {self.inputs[i]} is the same tensor as {self.inputs[first]}: it was copied, so "
                     "that the file has two inputs")

    def run(self, *tensors):
        if self._keys is None:
            return self._forward(*tensors, **self._options)
        return self._forward(**dict(zip(self._keys, tensors)), **self._options)

    def name_outputs(self):
        """Runs the example once. Names of the outputs: the user's, then the module's."""
        with as_it_was(self.module), _without_cache(self.module), torch.no_grad(), _without_numbers(self.module) as fake:
            examples = [fake.from_tensor(example) for example in self.examples] if fake else self.examples
            by_place = [] if self._keys else examples
            by_name = dict(zip(self._keys, examples)) if self._keys else {}
            own = [name for name, _ in _named(self.module(*by_place, **by_name, **self._options))]
        if not own:
            raise OptionError("`module`: expected tensors among the outputs of its forward pass, got none")
        given = self.outputs or []
        if len(given) > len(own):
            raise OptionError(f"`output_names`: expected {len(own)} at most, for {', '.join(own)}, got {len(given)}")
        self.outputs = list(given)
        for i, name in enumerate(own[len(given):], len(given)):
            taken = name in self._held or name in self.inputs or name in self.outputs
            self.outputs.append(f"{name}_out{i}" if taken else name)

    @contextlib.contextmanager
    def patched(self):
        """Meanwhile the module takes the tensors by place and returns a tuple of tensors: exporters know no more."""
        def forward(*tensors):
            outputs = tuple(tensor for _, tensor in _named(self.run(*tensors)))
            return outputs if len(outputs) > 1 else outputs[0]

        # PyTorch reads the names of arguments from the signature.
        forward.__signature__ = inspect.Signature([
            inspect.Parameter(f"input_{i}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for i in range(len(self.examples))])
        before = self.module.__dict__.get("forward")
        self.module.forward = forward
        try:
            yield
        finally:
            if before is None:
                del self.module.forward
            else:
                self.module.forward = before


@contextlib.contextmanager
def as_it_was(module):
    """Gives back the module's buffers, its mode and the state of the random generator afterwards, and weights that a
    forward pass changes."""
    modes = [(child, child.training) for child in module.modules()]
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    shortened = [(child, child.weight.detach().clone()) for child in module.modules()
                 if isinstance(child, EMBEDDINGS) and child.max_norm is not None]
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            for child, mode in modes:
                child.training = mode
            with torch.no_grad():
                for child, weight in shortened:
                    child.weight.copy_(weight)
                for name, buffer in module.named_buffers():
                    if name in buffers and buffer.shape == buffers[name].shape:
                        buffer.copy_(buffers[name])


# ---- open axes --------------------------------------------------------------

def default_axes(call):
    """{input: {axis: label}}: the first axis, where it is as long as the first input's, is the batch. The second of
    token ids, and of the integers beside them, is the sequence; what decoders read has one of its own."""
    first = call.examples[0]
    size = first.shape[0] if first.dim() else None
    axes = {name: {0: "batch"} for name, example in zip(call.inputs, call.examples)
            if example.dim() and example.shape[0] == size}
    config = getattr(_wrapped(call.module), "config", None)
    decoder = getattr(config, "is_encoder_decoder", False) or any(name.startswith("decoder_") for name in call.inputs)
    lengths = {}
    for name, example in zip(call.inputs, call.examples):
        if name not in axes or example.dim() != 2 or example.is_floating_point() or example.shape[1] < 2:
            continue
        label = "decoder_sequence" if name.startswith("decoder_") or decoder and "label" in name else "sequence"
        if lengths.setdefault(label, example.shape[1]) == example.shape[1]:
            axes[name][1] = label
    return axes


def given_axes(call, dynamic_axes):
    axes = {}
    for name, given in dynamic_axes.items():
        items = given.items() if hasattr(given, "items") else enumerate(given)
        axes[name] = {axis: label for axis, label in items if label is not None}
    for name in axes.keys() - set(call.inputs):
        raise OptionError(f"`dynamic_axes`: expected names of inputs ({', '.join(call.inputs)}), got {name}")
    return axes


# ---- Hugging Face -----------------------------------------------------------

@contextlib.contextmanager
def _without_cache(module):
    """A cache of keys and values is an output that nobody trains."""
    configs = {id(child.config): child.config for child in module.modules()
               if getattr(getattr(child, "config", None), "use_cache", None) is True}
    for config in configs.values():
        config.use_cache = False
    try:
        yield
    finally:
        for config in configs.values():
            config.use_cache = True


@contextlib.contextmanager
def ready(call):
    """Meanwhile the module can be exported, as far as we know."""
    with _without_cache(call.module), call.patched():
        yield


def ways_to_compute(module):
    """Settings of the module to try in turn, {"attn": "sdpa"} for instance; {} leaves it as it is."""
    model = _wrapped(module)
    config = getattr(model, "config", None)
    attention = getattr(config, "_attn_implementation", None)
    ways = [{}]
    if attention and hasattr(model, "set_attn_implementation"):
        ways += [{"attn": name} for name in ("sdpa", "eager") if name != attention]
    if hasattr(model, "set_experts_implementation") and any("Experts" in type(m).__name__ for m in model.modules()):
        # Others choose experts by the data, or by operators that ONNX does not have.
        return [way | {"experts": "batched_mm"} for way in ways] + ways
    return ways


@contextlib.contextmanager
def computing(module, way):
    model = _wrapped(module)
    before = {part: getattr(model.config, f"_{part}_implementation", None) for part in way}
    for part, name in way.items():
        getattr(model, f"set_{part}_implementation")(name)
    try:
        yield
    finally:
        for part, name in before.items():
            getattr(model, f"set_{part}_implementation")(name)
