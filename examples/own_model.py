"""Your own model: what does another feed-forward unit change in it, before anything is trained?

One learns to put any unit into a model at equal cost, to compute the condition number of its tangent kernel within a
budget of memory, and to ask whether a layer of it could be linearized on the inputs that it really sees.

    python examples/own_model.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.linearization import verdict

D_MODEL, WIDTH, TOKENS, VOCABULARY = 48, 192, 12, 64


class Block(nn.Module):
    """Attention and a feed-forward block, each behind a layer norm."""

    def __init__(self, unit: str, seed: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.attention = nn.MultiheadAttention(D_MODEL, 4, batch_first=True)
        self.feed_forward = gl.FeedForward(D_MODEL, WIDTH, unit, match_mlp=True, seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed_forward(self.between(x))


class Model(nn.Module):
    """Tokens to the logits of the next one."""

    def __init__(self, unit: str, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(VOCABULARY, D_MODEL)
        self.first, self.second = Block(unit, 2 * seed), Block(unit, 2 * seed + 1)
        self.head = nn.Linear(D_MODEL, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.second(self.first(self.embed(tokens))))


def main() -> None:
    tokens = torch.randint(VOCABULARY, (48, TOKENS), generator=torch.Generator().manual_seed(1))
    print("One logit at the last token, 48 texts; condition number of the tangent kernel by seed")
    for unit in ("mlp", "glu", "silu", "swiglu"):
        models = [Model(unit, seed).double() for seed in (0, 1)]
        kernels = [gl.ntk.empirical(model, tokens, outputs=(-1, 3), budget=2**30) for model in models]
        found = "  ".join(f"{gl.ntk.spectrum(K).condition:6.1f}" for K in kernels)
        print(f"  {unit:7} {sum(p.numel() for p in models[0].parameters()):6} parameters  {found}")

    seen: list[Tensor] = []
    model = Model("gelu").double()
    first = model.first.feed_forward
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].reshape(-1, D_MODEL)))
    model(tokens)
    print("\nCould the first feed-forward layer be linear in fewer features than it has neurons?")
    print(verdict("gelu", first.get_parameter("G"), seen[0], error=0.05))


if __name__ == "__main__":
    main()
