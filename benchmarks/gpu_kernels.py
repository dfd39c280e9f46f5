"""Empirical kernels on a GPU: `python -m benchmarks.gpu_kernels OUT.json --text TOKENS.npy --images PIXELS.npy`.

1. GPT-2 small from its configuration (random weights), 128 tokens, 256 samples, one logit a sample, strict float32:
   `gl.ntk.empirical` within 24 GiB, `vmap(grad)` in chunks of samples, one forward and backward pass.
2. The condition numbers of figure 3: ViT and GPT-2 with plain and gated units, three seeds, float64, with the weights
   of their configurations (deviation 0.02) and with LeCun's in all linear layers, which is what theory assumes.

Images are an array (N, 3, 32, 32) or (N, 32, 32, 3); text is one of token numbers. Each step is written as it ends.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import transformers
import typer
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.harness import Row, facts, timed, write_record
from gatelab.models import transplant
from gatelab.ntk import empirical

UNITS = ("mlp", "glu", "gelu", "geglu", "silu", "swiglu", "relu2", "gqu")
SEEDS, LOGIT = 3, 11
SAMPLES, LENGTH = 256, 128  # tokens a sample
BUDGET = 24 * 2**30
CHUNK = 12  # samples of vmap(grad) that fit the budget
VIT = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}


def gpt2(seed: int, attention: str) -> Any:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(attn_implementation=attention, use_cache=False)
    return transformers.GPT2LMHeadModel(config).eval()


def vit(seed: int) -> Any:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = VIT | {"image_size": 32, "patch_size": 4, "num_labels": 10}
    return transformers.ViTForImageClassification(transformers.ViTConfig(attn_implementation="sdpa", **sizes)).eval()


def measured(run: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """The result, the seconds it took and the memory of a GPU beyond what was there before."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result, seconds = timed(run)
    return result, {"seconds": seconds, "gib": (torch.cuda.max_memory_allocated() - before) / 2**30}


def plain_pass(model: nn.Module, ids: Tensor, batch: int) -> None:
    """One forward and backward pass over all samples, gradients summed."""
    for part in ids.split(batch):
        model(input_ids=part).logits[:, -1, LOGIT].sum().backward()
    model.zero_grad(set_to_none=True)


@torch.no_grad()
def by_vmap(model: nn.Module, ids: Tensor) -> Tensor:
    """K by blocks of samples: the gradients of two chunks at a time, which is all that a small memory holds."""

    def value(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, parameters, (), {"input_ids": row[None]}).logits[0, -1, LOGIT]

    parameters, gradients = dict(model.named_parameters()), vmap(grad(value), in_dims=(None, 0))
    K, chunks = torch.zeros(len(ids), len(ids), dtype=torch.float64, device=ids.device), range(0, len(ids), CHUNK)
    for i in chunks:
        first = gradients(parameters, ids[i : i + CHUNK])
        for j in chunks[: i // CHUNK + 1]:
            second = first if i == j else gradients(parameters, ids[j : j + CHUNK])
            block = sum((a.flatten(1) @ second[name].flatten(1).T).double() for name, a in first.items())
            K[i : i + CHUNK, j : j + CHUNK] = block
            del second
    return K.tril() + K.tril(-1).T


def lecun(model: nn.Module, seed: int) -> None:
    """Draw the weights of all linear layers from N(0, 1 / fan-in); biases are zero already, embeddings stay."""
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for module in model.modules():
        name, weight = type(module).__name__, getattr(module, "weight", None)
        if isinstance(weight, Tensor) and name in ("Linear", "Conv1D", "Conv2d") and id(weight) not in embeddings:
            fan = weight.shape[0] if name == "Conv1D" else weight[0].numel()
            weight.data.normal_(0.0, fan**-0.5, generator=generator)


def eigenvalues(K: Tensor) -> dict[str, float]:
    low, high = torch.linalg.eigvalsh(K)[[0, -1]].tolist()
    return {"lambda_min": low, "lambda_max": high, "condition": high / low if low > 0 else math.inf}


def tokens(text: Path, vocabulary: int) -> tuple[Tensor, str]:
    """Windows of a text, evenly spread over it, and what they are."""
    windows = np.lib.stride_tricks.sliding_window_view(np.load(text).astype(np.int64).ravel(), LENGTH)
    spread = windows[np.linspace(0, len(windows) - 1, SAMPLES).astype(int)] % vocabulary
    return torch.from_numpy(spread), f"token numbers of {text.name}"


def pixels(images: Path) -> tuple[Tensor, str]:
    """Images and what they are."""
    raw = torch.from_numpy(np.load(images)[:SAMPLES]).double()
    if raw.shape[-1] == 3:
        raw = raw.movedim(-1, 1)
    spread, mean = torch.std_mean(raw, (0, 2, 3), correction=0, keepdim=True)
    return ((raw - mean) / spread).float(), f"{images.name}, channels of unit variance"


def race(record: Row, device: str, save: Callable[[], None], text: Path, _: Any) -> None:
    """Part 1."""
    model = gpt2(0, "eager").to(device)
    ids = tokens(text, model.config.vocab_size)[0].to(device)
    size = sum(p.numel() for p in model.parameters())
    record["model"] = f"GPT-2, {size} parameters, {len(ids)} samples of {ids.shape[1]} tokens"

    def ours(rows: Tensor = ids) -> Tensor:
        return empirical(model, {"input_ids": rows}, (-1, LOGIT), budget=BUDGET).matrix

    ours(ids[:8])  # libraries load
    runs = [measured(ours) for _ in range(3)]
    K, best = min(runs, key=lambda run: run[1]["seconds"])
    of_runs = {"budget": f"{BUDGET // 2**30}GiB", "all_seconds": [c["seconds"] for _, c in runs]}
    record["empirical"] = best | of_runs | eigenvalues(K)
    plain_pass(model, ids[:8], 8)
    record["forward_backward"] = measured(lambda: plain_pass(model, ids, 32))[1]
    save()
    twin, cost = measured(lambda: by_vmap(model, ids))
    scale = twin.diagonal().sqrt()
    apart = float(((K - twin).abs() / scale.outer(scale)).max())
    record["vmap_grad"] = cost | {"chunk": CHUNK, "apart": apart} | eigenvalues(twin)
    record["times_faster"] = cost["seconds"] / best["seconds"]


def figure3(record: Row, device: str, save: Callable[[], None], text: Path, images: Any) -> None:
    """Part 2."""
    rows = record["figure3"] = []
    for seed, kind in product(range(SEEDS), ("vit", "gpt2")):
        if kind == "vit":
            base, outputs, name = vit(seed), 0, "pixel_values"
            data, what = pixels(images)
        else:
            base, outputs, name = gpt2(seed, "sdpa"), (-1, LOGIT), "input_ids"
            data, what = tokens(text, base.config.vocab_size)
        base, X = base.to(device), {name: data}
        for unit, start in product(UNITS, ("configuration", "lecun")):
            model = transplant(base, unit, seed=seed)
            if start == "lecun":
                lecun(model, seed)
            model = model.double()
            K, cost = measured(lambda m=model, x=X, o=outputs: empirical(m, x, o).matrix)
            row = {"model": kind, "unit": unit, "start": start, "seed": seed, "n": SAMPLES, "data": what}
            rows.append(row | {"parameters": sum(p.numel() for p in model.parameters())} | eigenvalues(K) | cost)
            del model
            save()


def main(
    out: Path,
    text: Annotated[Path, typer.Option()],
    images: Annotated[Path | None, typer.Option(help="For figure3.")] = None,
    only: Annotated[str, typer.Option(help="race or figure3.", show_default="both")] = "",
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    device = ("cpu", "cuda")[torch.cuda.is_available()]
    what = "empirical kernels: time and memory for GPT-2 small, condition numbers of ViT and GPT-2"
    record: Row = {"what": what, **facts(device), "transformers": transformers.__version__}
    save = partial(write_record, out, record)
    for part in (race, figure3):
        if only in ("", part.__name__):
            record[f"{part.__name__}_seconds"] = timed(partial(part, record, device, save, text, images))[1]
            save()


if __name__ == "__main__":
    typer.run(main)
