# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch and transformers are: a Llama that is exported on the meta device, and trained from the shards that
`save_pretrained` writes."""
import pathlib
import tempfile
import warnings

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import onnx_fp8
import onnx_fp8.torch

warnings.simplefilter("ignore", onnx_fp8.Note)
for tied in (True, False):
    config = LlamaConfig(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied)
    torch.manual_seed(0)
    published = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 61, (2, 7))
    with torch.no_grad():
        expected = published(input_ids=ids, use_cache=False).logits.numpy()
    with torch.device("meta"):
        empty = LlamaForCausalLM(config)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        published.save_pretrained(folder / "hub", max_shard_size="20KB")
        assert (folder / "hub/model.safetensors.index.json").exists()
        onnx_fp8.torch.export(empty, {"input_ids": ids}, folder / "m.onnx", weights=False)
        session = onnx_fp8.TrainingSession(folder / "m.onnx", weights=folder / "hub", loss="cross_entropy",
                                           optimizer="sgd", lr=0.1)
        np.testing.assert_allclose(session.predict({"input_ids": ids})["logits"], expected, rtol=1e-3, atol=1e-5)
        batch = {"input_ids": ids, "labels": (ids + 1) % 61}
        losses = [session.step(batch).loss for _ in range(2)]
        assert losses[1] < losses[0], losses
