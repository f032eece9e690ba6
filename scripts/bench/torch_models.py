# SPDX-License-Identifier: Apache-2.0
"""The models, as a user of PyTorch writes them."""
import importlib.util
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

from bench.task import (BATCH, CLASSES, HEADS, HIDDEN, IMAGE, KV_HEADS, LAYERS,
                        PATCH, PATCHES, SEQ, TIED, VOCABULARY, WIDTH)

HEAD = WIDTH // HEADS


def split_heads(x, heads):
    return x.view(*x.shape[:2], heads, HEAD).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).flatten(2)


class GPTBlock(nn.Module):
    def __init__(self, causal=True):
        super().__init__()
        self.causal = causal
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc_proj = nn.Linear(4 * WIDTH, WIDTH)
        self.gelu = nn.GELU()

    def forward(self, x):
        q, k, v = (split_heads(y, HEADS)
                   for y in self.qkv(self.ln_1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(join_heads(y))
        return x + self.fc_proj(self.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(SEQ, WIDTH)
        self.blocks = nn.ModuleList(GPTBlock() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if TIED:
            self.lm_head.weight = self.wte.weight

    def forward(self, input_ids):
        position = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(position)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class ViT(nn.Module):
    """Classes of images: the GPT's blocks over patches that all see all."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.zeros(1, PATCHES, WIDTH))
        self.blocks = nn.ModuleList(GPTBlock(False) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        kv = KV_HEADS * HEAD
        self.attention_norm = RMSNorm()
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, kv, bias=False)
        self.v_proj = nn.Linear(WIDTH, kv, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn_norm = RMSNorm()
        self.gate_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        y = self.attention_norm(x)
        q = rotate(split_heads(self.q_proj(y), HEADS), cos, sin)
        k = rotate(split_heads(self.k_proj(y), KV_HEADS), cos, sin)
        v = split_heads(self.v_proj(y), KV_HEADS)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=True)
        x = x + self.o_proj(join_heads(y))
        y = self.ffn_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaBlock() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angle = torch.outer(torch.arange(SEQ),
                            10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
        angle = torch.cat([angle, angle], dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, input_ids):
        seq = input_ids.shape[1]
        cos, sin = self.cos[:seq], self.sin[:seq]
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def tiny():
    """The GPT of samples/gpt_tiny."""
    path = (pathlib.Path(__file__).resolve().parents[2]
            / "samples/gpt_tiny/export.py")
    spec = importlib.util.spec_from_file_location("gpt_tiny", path)
    sample = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = sample  # torch.compile imports it by name
    spec.loader.exec_module(sample)
    return sample.GPT()


def make(name, seed=0):
    """The untrained model; a seed always gives the same weights."""
    torch.manual_seed(seed)
    model = {"gpt": GPT, "llama": Llama, "vit": ViT, "gpt_tiny": tiny}[name]()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def batch(name):
    """Random inputs and labels of the task."""
    if name == "vit":
        return (torch.randn(BATCH, 3, IMAGE, IMAGE),
                torch.randint(CLASSES, (BATCH,)))
    return tuple(torch.randint(VOCABULARY, (BATCH, SEQ)) for _ in "ab")
