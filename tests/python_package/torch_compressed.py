# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch, transformers and compressed-tensors are: folders with a scale for a tensor, a row, and a ragged
block are decoded by both packages to code · scale, bit by bit."""
import json
import pathlib
import sys
import tempfile
import warnings

import torch
from compressed_tensors.entrypoints.convert.converters.ct_dequantizer import CompressedTensorsDequantizer
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, LlamaConfig, LlamaForCausalLM

LAYERS = 7
# By recipe: the strategy, and the sides of a part of a weight [out, in] that has one scale.
KINDS = {"tensorwise": ("tensor", lambda out, width: (out, width)),
         "delayed": ("tensor", lambda out, width: (out, width)),
         "rowwise": ("channel", lambda out, width: (1, width)),
         "blockwise": ("block", lambda out, width: (128, 128)),
         "mxfp8": ("group", lambda out, width: (1, 32))}

# Layers that read one matrix share its scale.
READ_TOGETHER = [["q_proj", "k_proj", "v_proj"], ["gate_proj", "up_proj"]]


def tiny_llama():
    # The sides 64 and 160 are no multiples of 128.
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=64, intermediate_size=160, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=False)).eval()


def decoded(held, strategy, sides_of):
    """The weights of the file `held`: code · scale in float32."""
    weights = {}
    for name, tensor in held.items():
        if name.endswith((".weight_scale", ".input_scale")):
            continue
        weights[name] = tensor.float()
        if tensor.dtype != torch.float8_e4m3fn:
            continue
        scale, (out, width) = held[name + "_scale"], tensor.shape
        rows, columns = sides_of(out, width)
        grid = -(-out // rows), -(-width // columns)
        assert scale.dtype == (torch.uint8 if strategy == "group" else torch.float32), (name, scale.dtype)
        assert scale.shape == ((1,) if strategy == "tensor" else grid), (name, scale.shape)
        if strategy == "group":
            scale = torch.exp2(scale.float() - 127)
        whole = scale.reshape(grid).repeat_interleave(rows, 0).repeat_interleave(columns, 1)
        weights[name] *= whole[:out, :width]
    return weights


def check(folder, strategy, sides_of, inputs):
    """`inputs`: the scales of inputs, by module, of which the packages dequantize none."""
    held = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    assert config["config_groups"]["group_0"]["weights"]["strategy"] == strategy
    expected = decoded(held, strategy, sides_of)
    assert sum(tensor.dtype == torch.float8_e4m3fn for tensor in held.values()) == LAYERS
    # The package decodes weights, and takes what is left for an error.
    of_weights = {name: tensor for name, tensor in held.items() if not name.endswith(".input_scale")}
    package = CompressedTensorsDequantizer(folder, dtype=torch.float32).validate(of_weights)
    model, loading = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=CompressedTensorsConfig(dequantize=True), output_loading_info=True)
    assert not loading["missing_keys"], loading
    assert set(loading["unexpected_keys"]) <= {f"{module}.input_scale" for module in inputs}, loading
    scheme = json.loads((folder / "config.json").read_text())["quantization_config"]["config_groups"]["group_0"]
    args = QuantizationScheme.model_validate(scheme).input_activations
    assert args.dynamic != bool(inputs), args
    assert {name: held[name].item() for name in held if name.endswith(".input_scale")} == {
        f"{module}.input_scale": scale for module, scale in inputs.items()}
    for reader, weights in (("compressed-tensors", package), ("transformers", model.state_dict())):
        assert weights.keys() == expected.keys(), reader
        for name, weight in expected.items():
            assert torch.equal(weights[name], weight), (reader, name)
    return expected


def scales_of_inputs(session, run):
    """The kept scales of the run's state, by module."""
    session.resume(run)
    scales = {}
    for key, scale in session.scales.items():
        name, product, operand, _ = key.split("/")
        if (product, operand) == ("forward", "input"):
            path, last = name.removesuffix(".weight").rsplit(".", 1)
            for module in next((group for group in READ_TOGETHER if last in group), [last]):
                scales[f"{path}.{module}"] = scale
    return scales


def main(recipes):
    import onnx_fp8
    import onnx_fp8.torch

    warnings.simplefilter("ignore", onnx_fp8.Note)
    module, ids = tiny_llama(), torch.randint(0, 61, (4, 8))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        module.save_pretrained(folder / "hub")
        onnx_fp8.torch.export(module, {"input_ids": ids}, folder / "m.onnx")
        data = {"input_ids": ids.numpy(), "labels": ((ids + 1) % 61).numpy()}
        for recipe in recipes:
            print(recipe, flush=True)  # an error below is of this recipe
            run, out = folder / recipe, folder / f"served_{recipe}"
            onnx_fp8.train(folder / "m.onnx", data=data, loss="cross_entropy", batch_size=4, steps=1, recipe=recipe,
                           filter_fqns=["lm_head"], out=run, progress=False)
            onnx_fp8.export(run, out, format="hf-fp8", like=folder / "hub")
            session = onnx_fp8.TrainingSession(folder / "m.onnx", loss="cross_entropy", recipe=recipe, filter_fqns=["lm_head"])
            served = check(out, *KINDS[recipe], scales_of_inputs(session, run))
            for key, weight in onnx_fp8.torch.state_dict(run).items():
                assert (served[key] - weight).abs().max() <= weight.abs().max() / 16, key


if __name__ == "__main__":
    main(sys.argv[1:] or KINDS)
