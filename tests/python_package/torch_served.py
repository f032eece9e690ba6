# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch and transformers are: a Llama that is trained in FP8 leaves as a folder that `from_pretrained`
reads, whose weights are code · scale bit by bit."""
import pathlib
import tempfile
import warnings

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import onnx_fp8
import onnx_fp8.torch

warnings.simplefilter("ignore", onnx_fp8.Note)
config = LlamaConfig(vocab_size=61, hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
                     num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=False)
torch.manual_seed(0)
module = LlamaForCausalLM(config).eval()
ids = torch.randint(0, 61, (4, 8))
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    module.save_pretrained(folder / "hub")
    onnx_fp8.torch.export(module, {"input_ids": ids}, folder / "m.onnx")
    data = {"input_ids": ids.numpy(), "labels": ((ids + 1) % 61).numpy()}
    onnx_fp8.train(folder / "m.onnx", data=data, loss="cross_entropy", batch_size=4, steps=2, recipe="blockwise",
                   filter_fqns=["lm_head"], out=folder / "run", progress=False)
    onnx_fp8.export(folder / "run", folder / "out", format="hf-fp8", like=folder / "hub")
    held = load_file(folder / "out/model.safetensors")
    trained = onnx_fp8.torch.state_dict(folder / "run")
    served = AutoModelForCausalLM.from_pretrained(folder / "out", dtype=torch.float32).state_dict()
    layers = 0
    for key, weight in trained.items():
        scale = held.get(key + "_scale_inv")
        expected = weight
        if scale is not None:
            layers += 1
            blocks = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            expected = held[key].float() * blocks
            assert (expected - weight).abs().max() <= weight.abs().max() / 16
        assert torch.equal(served[key], expected), key
    assert layers == 7, layers
    onnx_fp8.export(folder / "run", folder / "halves", format="bf16", like=folder / "hub")
    halves = AutoModelForCausalLM.from_pretrained(folder / "halves", dtype=torch.bfloat16).state_dict()
    for key, weight in trained.items():
        assert torch.equal(halves[key], weight.bfloat16()), key
    # A module on another machine gets the same state.
    with torch.device("meta"):
        other = LlamaForCausalLM(config)
    missing = other.load_state_dict(trained, strict=False, assign=True).missing_keys
    assert not missing, missing
