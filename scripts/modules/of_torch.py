# SPDX-License-Identifier: Apache-2.0
"""Modules as people write them with torch.nn alone."""
import torch
from torch import nn
from torch.nn import functional as F

from modules.case import VOCABULARY, case, classes, images, numbers, rows

CLASSES = 5


def tokens(batch=4, length=8):
    return lambda: (torch.randint(3, VOCABULARY, (batch, length)),)


@case("nn.Transformer", "torch", lambda: (torch.randn(4, 6, 16), torch.randn(4, 5, 16)), "mse", labels=numbers, ci=True)
def _():
    return nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=True)


class Words(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self, layer):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16, padding_idx=5)
        self.layer, self.head = layer(16, 16, 2, batch_first=True), nn.Linear(16, VOCABULARY)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens))[0])


@case("LSTM", "torch", tokens(), "cross_entropy", labels=classes, ci=True)
def _():
    return Words(nn.LSTM)


@case("GRU", "torch", tokens(), "cross_entropy", labels=classes)
def _():
    return Words(nn.GRU)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16, padding_idx=0)
        self.layer, self.norm = nn.LSTM(16, 8, bidirectional=True, batch_first=True), nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens):
        return self.head(self.norm(self.layer(self.embedding(tokens))[0]))


@case("LSTM of two directions", "torch", tokens(), "cross_entropy", labels=classes)
def _():
    return Tagger()


@case("PReLU", "torch", images(8), "cross_entropy", labels=classes, ci=True)
def _():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.PReLU(), nn.Conv2d(8, 8, 3), nn.PReLU(8), nn.Flatten(),
                         nn.Linear(128, CLASSES))


class UNet(nn.Module):
    """Segmentation: a class for each pixel, and the loss."""

    def __init__(self):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        self.down, self.deep, self.up = block(3, 8), block(8, 16), nn.ConvTranspose2d(16, 8, 2, 2)
        self.last, self.head = block(16, 8), nn.Conv2d(8, CLASSES, 1)

    def forward(self, image, classes):
        whole = self.down(image)
        deep = self.up(self.deep(F.max_pool2d(whole, 2)))
        logits = self.head(self.last(torch.cat([whole, deep], 1)))
        return {"loss": F.cross_entropy(logits, classes), "logits": logits}


@case("UNet", "torch", lambda: (torch.randn(4, 3, 16, 16), torch.randint(0, CLASSES, (4, 16, 16))), ci=True)
def _():
    return UNet()


class Towers(nn.Module):
    """Users and items meet at a temperature."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(40, 16), nn.Embedding(50, 16)
        self.user, self.item = (nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(2))
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, user, item):
        u, i = F.normalize(self.user(self.users(user)), dim=-1), F.normalize(self.item(self.items(item)), dim=-1)
        return u @ i.T / self.temperature


@case("two towers", "torch", lambda: (torch.randint(0, 40, (8,)), torch.randint(0, 50, (8,))), "cross_entropy",
      labels=lambda shape: torch.arange(shape[0]), ci=True)
def _():
    return Towers()


class Weighted(nn.Module):
    """Class weights in the loss, images that are normalized inside."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Tanh(), nn.Linear(16, CLASSES))
        self.register_buffer("weights", torch.tensor([0.5, 1.0, 2.0, 1.0, 0.25]))
        self.mean, self.std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])

    def forward(self, image, classes):
        logits = self.layers((image - self.mean[:, None, None]) / self.std[:, None, None])
        return {"loss": F.cross_entropy(logits, classes, weight=self.weights), "logits": logits}


@case("class weights", "torch", lambda: (torch.randn(8, 3, 8, 8), torch.randint(0, CLASSES, (8,))), ci=True)
def _():
    return Weighted()


class Scalars(nn.Module):
    """Gates, temperatures, exponents: parameters of one number."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, CLASSES)
        self.gate, self.power = nn.Parameter(torch.tensor(0.0)), nn.Parameter(torch.tensor(2.0))
        self.scale, self.shift = nn.Parameter(torch.tensor(2.6)), nn.Parameter(torch.ones(1))

    def forward(self, x):
        h = self.first(x)
        h = h + torch.sigmoid(self.gate) * (h.abs() + 0.1) ** self.power
        return self.second(h) * self.scale.exp() + self.shift


@case("scalars", "torch", rows(16), "cross_entropy", labels=classes, ci=True)
def _():
    return Scalars()


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU())
        self.head = nn.Linear(32, CLASSES)
        self.backbone.requires_grad_(False)

    def forward(self, x):
        return self.head(self.backbone(x))


@case("frozen backbone", "torch", rows(16), "cross_entropy", labels=classes, ci=True)
def _():
    return Frozen()


@case("equal layers", "torch", rows(16), "mse", labels=numbers)
def _():
    layers = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16))
    layers[3].load_state_dict(layers[0].state_dict())
    return layers


@case("weight norm", "torch", rows(16), "mse", labels=numbers)
def _():
    norm = nn.utils.parametrizations.weight_norm
    return nn.Sequential(norm(nn.Linear(16, 32)), nn.ELU(), norm(nn.Linear(32, 8)))


class Bag(nn.Module):
    """Clicks from features of two kinds, as in DLRM."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 8) for _ in range(3))
        self.dense, self.top = nn.Linear(13, 8), nn.Linear(8 + 6, 1)

    def forward(self, dense, sparse):
        vectors = [F.relu(self.dense(dense))] + [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack(vectors, 1)
        products = stacked @ stacked.transpose(1, 2)
        row, column = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([vectors[0], products[:, row, column]], 1))


@case("DLRM", "torch", lambda: (torch.randn(8, 13), torch.randint(0, 20, (8, 3))), "bce_with_logits", labels=lambda shape:
      torch.randint(0, 2, shape).float())
def _():
    return Bag()


class Autoencoder(nn.Module):
    """The decoder is the encoder, transposed."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 16) / 4), nn.Parameter(torch.zeros(16))

    def forward(self, x):
        return F.linear(torch.tanh(F.linear(x, self.weight)), self.weight.T, self.bias)


@case("tied autoencoder", "torch", rows(16), "mse", labels=numbers)
def _():
    return Autoencoder()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1, 6, 16))
        self.attention, self.norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = x + self.place
        return self.head(self.norm(x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


@case("MultiheadAttention", "torch", lambda: (torch.randn(4, 6, 16),), "cross_entropy", labels=classes)
def _():
    return Attention()


@case("GroupNorm and InstanceNorm", "torch", images(8), "cross_entropy", labels=classes)
def _():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3),
                         nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.Flatten(), nn.Linear(128, CLASSES))


@case("frozen BatchNorm", "torch", images(8), "cross_entropy", labels=classes)
def _():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                         nn.Linear(288, CLASSES)).eval()


@case("temporal convolutions", "torch", lambda: (torch.randn(4, 3, 24),), "mse", labels=numbers)
def _():
    return nn.Sequential(nn.Conv1d(3, 8, 3, padding=2, dilation=2), nn.BatchNorm1d(8), nn.LeakyReLU(),
                         nn.Conv1d(8, 8, 3, padding=4, dilation=4), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 1, 1))
