"""Models for the tests of empirical kernels, their samples, and the slow obvious twin: one gradient a sample."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from gatelab.feedforward import unit

N = 6


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(*shape, high, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def naive(model, X, pick, n=N):
    """K = J J^T, row i of J by a backward pass from sample i alone; `pick(output, i)` gives its numbers."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    columns = None
    for i in range(n):
        one = {k: v[i : i + 1] for k, v in X.items()} if isinstance(X, dict) else X[i : i + 1]
        values = pick(model(**one) if isinstance(X, dict) else model(one), i).reshape(-1)
        columns = columns or [[] for _ in values]
        for c, value in enumerate(values):
            found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
            found = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
            columns[c].append(torch.cat([g.flatten() for g in found]))
    rows = [torch.stack(column) for column in columns]
    return sum(J @ J.T for J in rows)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, 3, stride=2, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 8, 3, padding="same", dilation=2, groups=2, bias=False),
            nn.GroupNorm(2, 8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 4, (2, 1), padding=(1, 0)),
        )
        self.line = nn.Conv1d(4, 3, 3, stride=2, padding=1)
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.line(torch.tanh(self.body(x)).flatten(2)).mean(2))


class Twice(nn.Module):
    """One layer called twice, one weight that is also an embedding, positions without samples."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 5, padding_idx=3), nn.Embedding(7, 5)
        self.inner, self.norm = nn.Linear(5, 5), nn.LayerNorm(5)

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1]))
        h = torch.tanh(self.inner(self.norm(torch.tanh(self.inner(h)))))
        return functional.linear(h, self.words.weight)


class Free(nn.Module):
    """Parameters used in every way that has no rule, and in some that have one."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(draw(4, seed=1)), nn.Parameter(draw(1, 3, 4, seed=2))
        self.start, self.angle = nn.Parameter(draw(1, 1, 4, seed=3)), nn.Parameter(draw(3, seed=4))
        self.mixed, self.table = nn.Parameter(draw(4, 4, seed=5)), nn.Parameter(draw(1, 9, 4, seed=6))
        self.idle = nn.Parameter(draw(2, seed=7))
        self.norm = nn.RMSNorm(4).double()

    def forward(self, x):
        h = torch.cat([self.start.expand(len(x), -1, -1), x * self.scale + self.shift], 1) + self.table[:, :4]
        h = self.norm(h @ self.mixed) + torch.einsum("ntd,de->nte", h, self.mixed.t() * self.mixed)
        return (h.sum(-1)[:, 1:] * torch.sin(self.angle)).sum(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class PositionsFirst(nn.Module):
    """Samples in the second dimension, and then both in one: its length looks right, its order is not."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = torch.tanh(self.a(x.transpose(0, 1).flatten(0, 1)))
        return self.b(h.unflatten(0, (-1, len(x))).mean(0))


def gpt2(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    options = {"attn_implementation": "eager"} | options
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=19, n_positions=12, **options)
    return GPT2LMHeadModel(config).double().eval()


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"num_labels": 3, "image_size": 8, "patch_size": 4, "attn_implementation": "eager"}
    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(**sizes)).double().eval()


def mlp():
    return nn.Sequential(nn.Linear(3, 7), nn.GELU(), nn.Linear(7, 5, bias=False), nn.Tanh(), nn.Linear(5, 1))


def one(out, i):
    return out


CASES = {
    "mlp": (mlp, lambda: draw(N, 3), None, one),
    "glu": (lambda: unit("glu").network(5, 3), lambda: draw(N, 3), None, one),
    "cnn": (Cnn, lambda: draw(N, 2, 9, 8), None, one),
    "twice": (
        Twice,
        lambda: tokens(N, 5, high=11).where(tokens(N, 5, high=4, seed=1) > 0, torch.tensor(3)),
        (-1, 4),
        lambda out, i: out[:, -1, 4],
    ),
    "free": (Free, lambda: draw(N, 3, 4), None, one),
    "attention": (Attention, lambda: draw(N, 3, 4), None, one),
    "positions first": (PositionsFirst, lambda: draw(N, 3, 3), None, one),
    "gpt2": (gpt2, lambda: {"input_ids": tokens(N, 10, high=19)}, (-1, 2), lambda out, i: out.logits[:, -1, 2]),
    "vit": (vit, lambda: {"pixel_values": draw(N, 3, 8, 8)}, 1, lambda out, i: out.logits[:, 1]),
}


def case(name):
    """The model (in double precision, its weights from a fixed seed), samples, outputs, and the twin's pick."""
    make, X, outputs, pick = CASES[name]
    torch.manual_seed(0)
    model = make().double().eval()
    return model, X(), outputs, pick
