"""Empirical kernels on a GPU: `python benchmarks/gpu_kernels.py OUT.json [--images A.npy] [--text F]`.

1. GPT-2 small from its configuration (random weights), 128 tokens, 256 samples, one logit a sample, strict float32:
   `gl.ntk.empirical` within 24 GiB, `vmap(grad)` in chunks as well as we can write it, one forward and backward pass.
2. The condition numbers of figure 3: ViT and GPT-2 with plain and gated units, three seeds, float64, with the weights
   of their configurations (deviation 0.02) and with LeCun's in all linear layers, which is what theory assumes.

Images are an array (N, 3, 32, 32) or (N, 32, 32, 3), bytes or numbers; without a file, Gaussian pixels. Text is an
array of token numbers (.npy), or any file, whose bytes are then the tokens; without one, uniform tokens. The record is
written after each step, and part 2 ends before a step when `--minutes` are over. `--tiny` is the same on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gatelab.models import transplant
from gatelab.ntk import empirical

UNITS = ("mlp", "glu", "gelu", "geglu", "silu", "swiglu", "relu2", "gqu")
LOGIT = 11
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


def tokens(path: Path | None, n: int, length: int, vocabulary: int) -> tuple[Tensor, str]:
    """n windows of a text, evenly spread over it, and what they are."""
    if path is None:
        return torch.randint(0, vocabulary, (n, length), generator=torch.Generator().manual_seed(0)), "uniform tokens"
    if path.suffix == ".npy":
        stream, what = np.load(path).astype(np.int64).ravel(), "token numbers"
    else:
        stream, what = np.frombuffer(path.read_bytes(), np.uint8).astype(np.int64), "bytes as tokens"
    starts = np.linspace(0, len(stream) - length, n).astype(int)
    return torch.from_numpy(np.stack([stream[s : s + length] for s in starts]) % vocabulary), f"{what} of {path.name}"


def images(path: Path | None, n: int) -> tuple[Tensor, str]:
    if path is None:
        return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0)), "Gaussian pixels"
    raw = np.load(path)[:n].astype(np.float64)
    raw = raw.transpose(0, 3, 1, 2) if raw.shape[-1] == 3 else raw
    mean, spread = raw.mean((0, 2, 3), keepdims=True), raw.std((0, 2, 3), keepdims=True)
    return torch.from_numpy((raw - mean) / spread).float(), f"{path.name}, channels of unit variance"


def measured(run: Callable[[], Any], cuda: bool) -> tuple[Any, dict[str, Any]]:
    """The result, the seconds it took and the memory beyond what was there before."""
    gc.collect()
    before = 0
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.cuda.synchronize()
    began = time.perf_counter()
    found = run()
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    peak = (torch.cuda.max_memory_allocated() - before) / 2**30 if cuda else None
    return found, {"seconds": seconds, "gib": peak}


def plain_pass(model: nn.Module, ids: Tensor, batch: int) -> None:
    """One forward and backward pass over all samples, gradients summed."""
    for part in ids.split(batch):
        model(input_ids=part).logits[:, -1, LOGIT].sum().backward()
    model.zero_grad(set_to_none=True)


def by_vmap(model: nn.Module, ids: Tensor, chunk: int, room: float) -> Tensor:
    """K by per-sample gradients: parameters in groups whose Jacobian stays below `room` bytes, samples in chunks."""
    groups: list[dict[str, Tensor]] = []
    used = math.inf
    for name, p in model.named_parameters():
        size = len(ids) * p.numel() * p.element_size()
        if used + size > room:
            groups.append({})
            used = 0
        groups[-1][name] = p.detach()
        used += size

    def value(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, parameters, (), {"input_ids": row[None]}).logits[0, -1, LOGIT]

    K = torch.zeros(len(ids), len(ids), dtype=torch.float64, device=ids.device)
    for group in groups:
        J = {name: torch.empty(len(ids), p.numel(), dtype=p.dtype, device=p.device) for name, p in group.items()}
        with torch.no_grad():
            for start in range(0, len(ids), chunk):
                found = vmap(grad(value), in_dims=(None, 0))(group, ids[start : start + chunk])
                for name in group:
                    J[name][start : start + chunk] = found.pop(name).flatten(1)
        for name in group:
            own = J.pop(name)
            K += (own @ own.T).double()
    return K


def by_vmap_blocks(model: nn.Module, ids: Tensor, chunk: int) -> Tensor:
    """K by blocks of samples: the gradients of two chunks at a time, which is all that a small memory holds."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def value(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, parameters, (), {"input_ids": row[None]}).logits[0, -1, LOGIT]

    K = torch.zeros(len(ids), len(ids), dtype=torch.float64, device=ids.device)
    per_sample = vmap(grad(value), in_dims=(None, 0))
    with torch.no_grad():
        for i in range(0, len(ids), chunk):
            first = per_sample(parameters, ids[i : i + chunk])
            for j in range(i, len(ids), chunk):
                second = first if i == j else per_sample(parameters, ids[j : j + chunk])
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


def race(record: dict[str, Any], args: argparse.Namespace, save: Callable[[], None]) -> None:
    """Part 1."""
    cuda, n, length = args.device == "cuda", args.samples, 16 if args.tiny else 128
    model = gpt2(args.tiny, 0, "eager").to(args.device)
    ids = tokens(args.text, n, length, model.config.vocab_size)[0].to(args.device)
    record["model"] = f"GPT-2, {sum(p.numel() for p in model.parameters())} parameters, {n} samples of {length} tokens"
    budget = "1GiB" if args.tiny else "24GiB"

    def ours() -> Tensor:
        return empirical(model, {"input_ids": ids}, (-1, LOGIT), budget=budget).matrix

    measured(lambda: empirical(model, {"input_ids": ids[:8]}, (-1, LOGIT), budget=budget), cuda)  # libraries load
    runs = [measured(ours, cuda) for _ in range(3)]
    K = runs[0][0]
    best = min((cost for _, cost in runs), key=lambda cost: cost["seconds"])
    record["empirical"] = best | {"budget": budget, "all_seconds": [c["seconds"] for _, c in runs]} | eigenvalues(K)
    save()
    measured(lambda: plain_pass(model, ids[:8], 8), cuda)
    record["forward_backward"] = measured(lambda: plain_pass(model, ids, 32), cuda)[1]
    save()
    record["vmap_grad"] = []
    # Jacobians of some parameters for all samples, which takes far more memory than the budget; and, chunk by chunk of
    # samples, what fits the budget.
    for chunk, room in ((16, 32 * 2**30), (32, 32 * 2**30), (32, 56 * 2**30), (12, None)):
        try:
            if room is None:
                twin, cost = measured(lambda c=chunk: by_vmap_blocks(model, ids, c), cuda)
            else:
                twin, cost = measured(lambda c=chunk, r=room: by_vmap(model, ids, c, r), cuda)
        except torch.cuda.OutOfMemoryError as error:
            record["vmap_grad"].append(
                {"chunk": chunk, "jacobian_gib": room and room / 2**30, "error": str(error)[:200]}
            )
            continue
        cost |= {"chunk": chunk, "jacobian_gib": room and room / 2**30, "apart": apart(K, twin)} | eigenvalues(twin)
        record["vmap_grad"].append(cost)
        save()
    quickest = min(c["seconds"] for c in record["vmap_grad"] if "seconds" in c)
    record["times_faster"] = quickest / best["seconds"]
    record["times_faster_within_budget"] = record["vmap_grad"][-1].get("seconds", math.nan) / best["seconds"]
    exact = empirical(model.double(), {"input_ids": ids}, (-1, LOGIT), budget="1GiB" if args.tiny else "48GiB").matrix
    record["empirical"] |= {"from_float64": apart(K, exact), "float64": eigenvalues(exact)}
    try:
        record["nngeometry"] = f"version {version('nngeometry')} is there; it was not run"
    except PackageNotFoundError:
        record["nngeometry"] = "not installed"
    save()


def figure3(record: dict[str, Any], args: argparse.Namespace, save: Callable[[], None]) -> None:
    """Part 2."""
    n, length, began = args.samples, 16 if args.tiny else 128, time.perf_counter()
    rows = record["figure3"] = []
    pixels, of_pixels = images(args.images, n)
    for seed in range(args.seeds):
        for kind in ("vit", "gpt2"):
            base = (vit(args.tiny, seed) if kind == "vit" else gpt2(args.tiny, seed, "sdpa")).to(args.device)
            if kind == "vit":
                X, what, outputs = {"pixel_values": pixels}, of_pixels, 0
            else:
                ids, what = tokens(args.text, n, length, base.config.vocab_size)
                X, outputs = {"input_ids": ids}, (-1, LOGIT)
            for unit, start in product(args.units, ("configuration", "lecun")):
                if time.perf_counter() - began > 60 * args.minutes:
                    record["stopped"] = f"after {args.minutes} minutes"
                    return
                model = transplant(base, unit, seed=seed)
                if start == "lecun":
                    lecun(model, seed)
                model = model.double()
                K, cost = measured(lambda m=model, x=X, o=outputs: empirical(m, x, o).matrix, args.device == "cuda")
                size = sum(p.numel() for p in model.parameters())
                rows.append({"model": kind, "unit": unit, "start": start, "seed": seed, "n": n, "data": what})
                rows[-1] |= {"parameters": size} | eigenvalues(K) | cost
                del model
                save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--units", nargs="+", default=UNITS)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--only", choices=("race", "figure3"))
    args = parser.parse_args()
    args.samples = args.samples or (12 if args.tiny else 256)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    record: dict[str, Any] = {
        "what": "empirical kernels: time and memory for GPT-2 small, condition numbers of ViT and GPT-2",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python {' '.join(sys.argv)}",
        "device": torch.cuda.get_device_name() if args.device == "cuda" else args.device,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }

    def save() -> None:
        args.out.write_text(json.dumps(record, indent=1) + "\n")

    for part in (race, figure3):
        if args.only in (None, part.__name__):
            began = time.perf_counter()
            part(record, args, save)
            record[f"{part.__name__}_seconds"] = time.perf_counter() - began
            save()
    print(json.dumps({k: v for k, v in record.items() if k != "figure3"}, indent=1))


if __name__ == "__main__":
    main()
