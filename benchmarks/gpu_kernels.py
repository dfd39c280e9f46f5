"""Empirical kernels on a GPU: `python -m benchmarks.gpu_kernels OUT.json [--images A.npy] [--text F]`.

1. GPT-2 small from its configuration (random weights), 128 tokens, 256 samples, one logit a sample, strict float32:
   `gl.ntk.empirical` within 24 GiB, `vmap(grad)` in chunks of samples, one forward and backward pass.
2. The condition numbers of figure 3: ViT and GPT-2 with plain and gated units, three seeds, float64, with the weights
   of their configurations (deviation 0.02) and with LeCun's in all linear layers, which is what theory assumes.

Images are an array (N, 3, 32, 32) or (N, 32, 32, 3), without a file Gaussian pixels; text is an array of token numbers,
without a file uniform ones. The record is written after each step. `--tiny` is the same in small, on a CPU.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import transformers
import typer
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.harness import facts, timed, write_record
from gatelab.models import transplant
from gatelab.ntk import empirical

UNITS = ("mlp", "glu", "gelu", "geglu", "silu", "swiglu", "relu2", "gqu")
SEEDS, LOGIT = 3, 11
SAMPLES = (256, 12)  # whole and tiny
GPT2_TINY = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 300}
VIT = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}
VIT_TINY = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def gpt2(tiny: bool, seed: int, attention: str) -> Any:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"attn_implementation": attention, "use_cache": False} | (GPT2_TINY if tiny else {})
    config = transformers.GPT2Config(**sizes)
    return transformers.GPT2LMHeadModel(config).eval()


def vit(tiny: bool, seed: int) -> Any:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"attn_implementation": "sdpa", "num_labels": 10} | (VIT_TINY if tiny else VIT)
    config = transformers.ViTConfig(image_size=32, patch_size=4, **sizes)
    return transformers.ViTForImageClassification(config).eval()


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
def by_vmap(model: nn.Module, ids: Tensor, chunk: int) -> Tensor:
    """K by blocks of samples: the gradients of two chunks at a time, which is all that a small memory holds."""

    def value(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, parameters, (), {"input_ids": row[None]}).logits[0, -1, LOGIT]

    parameters, gradients = dict(model.named_parameters()), vmap(grad(value), in_dims=(None, 0))
    K = torch.zeros(len(ids), len(ids), dtype=torch.float64, device=ids.device)
    for i in range(0, len(ids), chunk):
        first = gradients(parameters, ids[i : i + chunk])
        for j in range(i, len(ids), chunk):
            second = first if i == j else gradients(parameters, ids[j : j + chunk])
            block = sum((a.flatten(1) @ second[name].flatten(1).T).double() for name, a in first.items())
            K[i : i + chunk, j : j + chunk] = block
            K[j : j + chunk, i : i + chunk] = block.T
            del second
    return K


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
    values = torch.linalg.eigvalsh(K)
    low, high = float(values[0]), float(values[-1])
    return {"lambda_min": low, "lambda_max": high, "condition": high / low if low > 0 else math.inf}


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference of entries, relative to the geometric mean of the diagonal entries."""
    scale = b.diagonal().sqrt()
    return float(((a - b).abs() / (scale[:, None] * scale)).max())


def tokens(text: Path | None, vocabulary: int, tiny: bool) -> tuple[Tensor, str]:
    """Windows of a text, evenly spread over it, and what they are."""
    n, length = SAMPLES[tiny], (128, 16)[tiny]
    if text is None:
        return torch.randint(0, vocabulary, (n, length), generator=torch.Generator().manual_seed(0)), "uniform tokens"
    stream = np.load(text).astype(np.int64).ravel()
    starts = np.linspace(0, len(stream) - length, n).astype(int)
    windows = np.stack([stream[s : s + length] for s in starts]) % vocabulary
    return torch.from_numpy(windows), f"token numbers of {text.name}"


def pixels(images: Path | None, tiny: bool) -> tuple[Tensor, str]:
    """Images and what they are."""
    if images is None:
        draw = torch.Generator().manual_seed(0)
        return torch.randn(SAMPLES[tiny], 3, 32, 32, generator=draw), "Gaussian pixels"
    raw = np.load(images)[: SAMPLES[tiny]].astype(np.float64)
    if raw.shape[-1] == 3:
        raw = raw.transpose(0, 3, 1, 2)
    mean, spread = raw.mean((0, 2, 3), keepdims=True), raw.std((0, 2, 3), keepdims=True)
    return torch.from_numpy((raw - mean) / spread).float(), f"{images.name}, channels of unit variance"


def race(record: dict[str, Any], device: str, tiny: bool, text: Path | None, save: Callable[[], None]) -> None:
    """Part 1."""
    model = gpt2(tiny, 0, "eager").to(device)
    ids = tokens(text, model.config.vocab_size, tiny)[0].to(device)
    size = sum(p.numel() for p in model.parameters())
    record["model"] = f"GPT-2, {size} parameters, {len(ids)} samples of {ids.shape[1]} tokens"
    budget = (24 * 2**30, 2**30)[tiny]

    def ours(rows: Tensor = ids) -> Tensor:
        return empirical(model, {"input_ids": rows}, (-1, LOGIT), budget=budget).matrix

    ours(ids[:8])  # libraries load
    runs = [measured(ours) for _ in range(3)]
    K, best = runs[0][0], min((cost for _, cost in runs), key=lambda cost: cost["seconds"])
    of_runs = {"budget": f"{budget // 2**30}GiB", "all_seconds": [c["seconds"] for _, c in runs]}
    record["empirical"] = best | of_runs | eigenvalues(K)
    plain_pass(model, ids[:8], 8)
    record["forward_backward"] = measured(lambda: plain_pass(model, ids, 32))[1]
    save()
    chunk = 12  # what fits the budget
    twin, cost = measured(lambda: by_vmap(model, ids, chunk))
    record["vmap_grad"] = cost | {"chunk": chunk, "apart": apart(K, twin)} | eigenvalues(twin)
    record["times_faster"] = cost["seconds"] / best["seconds"]


def figure3(
    record: dict[str, Any], device: str, tiny: bool, text: Path | None, images: Path | None, save: Callable[[], None]
) -> None:
    """Part 2."""
    rows = record["figure3"] = []
    for seed, kind in product(range(SEEDS), ("vit", "gpt2")):
        if kind == "vit":
            base, outputs, name = vit(tiny, seed), 0, "pixel_values"
            data, what = pixels(images, tiny)
        else:
            base, outputs, name = gpt2(tiny, seed, "sdpa"), (-1, LOGIT), "input_ids"
            data, what = tokens(text, base.config.vocab_size, tiny)
        base, X = base.to(device), {name: data}
        for unit, start in product(UNITS, ("configuration", "lecun")):
            model = transplant(base, unit, seed=seed)
            if start == "lecun":
                lecun(model, seed)
            model = model.double()
            K, cost = measured(lambda m=model, x=X, o=outputs: empirical(m, x, o).matrix)
            row = {"model": kind, "unit": unit, "start": start, "seed": seed, "n": SAMPLES[tiny], "data": what}
            rows.append(row | {"parameters": sum(p.numel() for p in model.parameters())} | eigenvalues(K) | cost)
            del model
            save()


def main(
    out: Path,
    images: Path | None = None,
    text: Path | None = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small, on a CPU.")] = False,
    only: Annotated[Literal["race", "figure3", "both"], typer.Option(help="One part.")] = "both",
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    device = ("cpu", "cuda")[torch.cuda.is_available()]
    what = "empirical kernels: time and memory for GPT-2 small, condition numbers of ViT and GPT-2"
    record: dict[str, Any] = {"what": what, **facts(device), "transformers": transformers.__version__}
    given = {"device": device, "tiny": tiny, "text": text, "save": lambda: write_record(out, record)}
    for part in (partial(race, record, **given), partial(figure3, record, images=images, **given)):
        if only in ("both", part.func.__name__):
            record[f"{part.func.__name__}_seconds"] = timed(part)[1]
            write_record(out, record)


if __name__ == "__main__":
    typer.run(main)
