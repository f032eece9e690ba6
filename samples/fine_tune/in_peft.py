#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a trained adapter on the published module, and compares it with the merged model in ONNX Runtime.

usage: in_peft.py CHECKPOINT ADAPTER MERGED.onnx DATA.npz
"""
import sys

import numpy as np
import onnxruntime
import torch
from peft import PeftModel
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification


def main():
    checkpoint, adapter, merged, data = sys.argv[1:]
    arrays = dict(np.load(data))
    labels = torch.from_numpy(arrays.pop("labels"))

    module = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)
    module = PeftModel.from_pretrained(module, adapter).eval()
    with torch.no_grad():
        logits = module(**{name: torch.from_numpy(array) for name, array in arrays.items()}).logits
    print(f"PEFT: loss {F.cross_entropy(logits, labels).item():.6f}, "
          f"accuracy {(logits.argmax(1) == labels).float().mean().item():.4f}")

    [outputs] = onnxruntime.InferenceSession(merged).run(["logits"], arrays)
    difference = np.abs(outputs - logits.numpy()).max()
    print(f"the merged model's logits differ by at most {difference:.1e}")
    assert difference < 1e-4


if __name__ == "__main__":
    main()
