# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch and PEFT are: adapters trained here and there from the same numbers, in each other's folders."""
import copy
import json
import pathlib
import tempfile

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

FOLDER = tempfile.TemporaryDirectory()
PATH = FOLDER.name + "/model.onnx"
LORA = "r=4,alpha=8,targets=q_proj,v_proj"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(12, 20)
        self.v_proj = nn.Linear(20, 16, bias=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(F.gelu(self.v_proj(torch.tanh(self.q_proj(x)))))


def session_of(lora, **options):
    return onnx_fp8.TrainingSession(PATH, loss="cross_entropy", optimizer="sgd", lr=0.2, lora=lora, **options)


def logits(session):
    return torch.from_numpy(next(iter(session.predict({"x": x}).values())))


def in_peft(folder, **options):
    return PeftModel.from_pretrained(copy.deepcopy(module), folder, **options)


def close(a, b):
    assert (a - b).abs().max() < 1e-5, (a - b).abs().max()


torch.manual_seed(0)
module = Net()
x, labels = torch.randn(8, 12), torch.randint(5, (8,))
onnx_fp8.torch.export(module, torch.zeros(2, 12), PATH, input_names=["x"])

for more, rank_factor in (("", 2.0), (",rslora", 4.0)):
    session = session_of(LORA + more)
    start, end, back = (f"{FOLDER.name}/{name}{len(more)}" for name in ("start", "end", "back"))
    session.export_adapter(start)
    peft = in_peft(start, is_trainable=True)
    assert peft.base_model.model.q_proj.scaling["default"] == rank_factor
    trained = [p for p in peft.parameters() if p.requires_grad]
    assert len(trained) == 4
    optimizer = torch.optim.SGD(trained, lr=0.2)
    for _ in range(4):
        loss = F.cross_entropy(peft(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ours = session.step({"x": x, "labels": labels}).loss
        assert abs(ours - loss.item()) < 1e-5, (ours, loss.item())
    with torch.no_grad():
        close(logits(session), peft(x))
        assert (peft(x) - module(x)).abs().max() > 1e-3
        session.export_adapter(end)
        close(in_peft(end).eval()(x), peft(x))
        merged = FOLDER.name + "/merged.safetensors"
        session.export(merged)
        plain = copy.deepcopy(module)
        plain.load_state_dict(load_file(merged))
        close(plain(x), peft(x))
    peft.save_pretrained(back)
    close(logits(session_of(back)), logits(session))

# A parameter that is trained whole: PEFT's modules_to_save.
session = session_of(LORA, train=["head.weight", "head.bias"])
for _ in range(2):
    session.step({"x": x, "labels": labels})
whole = FOLDER.name + "/whole"
session.export_adapter(whole)
assert json.loads(pathlib.Path(whole, "adapter_config.json").read_text())["modules_to_save"] == ["head"]
with torch.no_grad():
    close(in_peft(whole).eval()(x), logits(session))
    close(logits(session_of(whole)), logits(session))
