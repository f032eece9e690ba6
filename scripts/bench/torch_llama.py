# SPDX-License-Identifier: Apache-2.0
"""Writes a Llama without weights, from the meta device, and its config.json into
the folder of its weights. Usage: python -m bench.torch_llama CONFIG MODEL FOLDER,
where CONFIG is JSON by the names of LlamaConfig."""
import json
import sys

import torch
import transformers

import onnx_fp8.torch


def main():
    settings, path, folder = sys.argv[1:]
    config = transformers.LlamaConfig(**json.loads(settings), tie_word_embeddings=False, use_cache=False)
    with torch.device("meta"):
        module = transformers.LlamaForCausalLM(config)
    example = torch.zeros(2, 8, dtype=torch.int64)
    onnx_fp8.torch.export(module, example, path, weights=False)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)


if __name__ == "__main__":
    main()
