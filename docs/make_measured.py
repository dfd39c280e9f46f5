"""Which record each measured number of the documents comes from: `python docs/make_measured.py` writes measured.md.

A sentence is made here out of its record, and the tests want it in its document, word by word: a number that has
changed in the one and not in the other is noticed. The tests also want every number of the README and of the
corrections to be in such a sentence, or in one of those that measure nothing (NOT_MEASURED).

The paragraph on the ladder at the top of the README, figure and tables of its room and those of smaller models are
made by the script itself: a fuller record is put in its place, the script is run, and the documents follow.

`python docs/make_measured.py FOLDER` first takes the claims of the full runs in FOLDER, as `gatelab reproduce` wrote
them, into results/claims.json: the record of studies that are not long enough to have one of their own.
"""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.linearization import floor, linearize
from gatelab.plotting import save
from gatelab.plotting.kernels import Series, draw_series, legend_below, plain_values
from gatelab.plotting.panel import canvas
from gatelab.plotting.theme import GREY, NEURON_COLOURS, style
from gatelab.statistics import Interval, t_interval
from gatelab.studies import Claim, Request
from gatelab.studies.definition import study
from gatelab.studies.ladder import enwik8
from gatelab.studies.ladder.climbs import Regime, plain_frame, speed_rows
from gatelab.train import Ladder
from gatelab.train.ladder_plans import LADDER_SIZES
from gatelab.train.ladders import BITS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # the benchmarks are beside the package, not in it

from benchmarks.datasets import chosen  # noqa: E402

RESULTS = ROOT / "results"
TARGET = DOCS / "measured.md"
CLAIMS = "claims.json"
HEAD = """# Measured numbers, and what holds them

Made by `python docs/make_measured.py`; do not edit. Each sentence is made out of its record and compared with its
document by the test beside it. `results/claims.json` has the claims of full runs of studies without a record of their
own; what names a study or a function is computed by the test.

| document | sentence | record | test |
|---|---|---|---|
"""
README, CORRECTIONS, KERNELS = "README.md", "docs/corrections.md", "docs/derivations/tangent-kernel.md"
GQU_PAGE, LIMIT_PAGE, NTK_ROOM = (
    "docs/derivations/gqu-order-four.md",
    "docs/derivations/spline-limit.md",
    "docs/rooms/ntk.md",
)
GAINS = "results/ntk/steps-gains.csv"
ERRORS = "results/scaling/table1-errors.csv"
TABLE1 = "results/scaling/table1.json"
GAP = "results/ntk/gap.json"
MODELS = "results/ntk/models.json"
WIDTH = "results/claims.json, ntk/width"
TABLE3 = "results/claims.json, linearize/table3"
LEARNED2 = "results/claims.json, linearize/learned2d"
LEARNED16 = "results/claims.json, linearize/learned16"
LADDER_ROOM = "docs/rooms/ladder.md"
SUPERSEDED = (
    "A new design supersedes this record, a grid in parameters and data ([ladder-design.md]({link})): here the largest "
    "size has no sweep, three seeds leave the number of pairs to the rule of variance, and one amount of data for all "
    "sizes leaves E a constant of the fit."
)
LADDER = "results/ladder/enwik8.json, speed.json, plain.json, slopes.json"
SHRINK_ROOM = "docs/rooms/shrink.md"
SHRINK = "results/anatomy/shrink.json, shrink-stories.json"
SHRUNKEN = {
    "stories260k": "anatomy/shrink-stories.json",
    "smollm2": "anatomy/shrink.json",
    "minilm": "anatomy/shrink.json",
}
PUBLISHED = ("magnitude", "wanda", "flap")
COMBINED = "surgeon"  # our combination of ZipLM's order and FASP's refit
OURS = ("ours", "ours balanced", "surgeon + distilled", "ours + distilled")
OURS += ("ours as relu2", "ours as gqu", "ours as relu2 + distilled", "ours as gqu + distilled")
OURS += ("ours + 4M own text", "surgeon + 12M own text", "ours + 12M own text")
ESTIMATORS_ROOM = "docs/rooms/estimators.md"
TASKS: dict[str, Any] = {"regressors": "regression", "classifiers": "classes"}
TABLES = {"regressors": ("rmse", "RMSE"), "classifiers": ("log_loss", "log loss")}
COMPARED = {"gated": "ours", "boosting": "HistGradientBoosting", "lightgbm": "LightGBM", "forest": "random forest"}
COMPARED |= {"extra": "extra trees"}
# What others measured on sets of their own, of which there is no record here.
ELSEWHERE_ON_TABLES = (
    "On held-out sets of others, which are not in this record, the regressor is within 2 % of the best on 10 of 16, "
    "4 % behind boosting at worst, and 5 and 10 % behind extra trees on two noisy ones; the classifier is within 2 % "
    "on 17 of 20."
)
# What is written into documents, between these two lines, out of records.
BEGIN, END = "<!-- made by docs/make_measured.py -->", "<!-- end of what is made -->"
LINEARIZE_ROOM = "docs/rooms/linearization.md"
HERE = "test_measured.py::test_a_sentence_is_that_of_its_record"


@dataclass(frozen=True)
class Held:
    """A sentence with measured numbers.

    Attributes:
        documents: Where it stands.
        sentence: The words, with the numbers of the record in them.
        record: What the numbers come from.
        test: What compares them.
    """

    documents: tuple[str, ...]
    sentence: str
    record: str
    test: str = HERE


# ---- records


def take_claims(folder: Path) -> None:
    """Write results/claims.json from the outcomes of full runs in a folder; studies that are not there stay."""
    path = RESULTS / CLAIMS
    taken: dict[str, Any] = {}
    if path.is_file():
        taken = json.loads(path.read_text(encoding="utf-8"))
    for file in sorted(folder.glob("*/*.json")):
        outcome = json.loads(file.read_text(encoding="utf-8"))
        if "claims" in outcome and not outcome["quick"]:
            names = ("command", "date", "device", "gatelab", "claims", "notes")
            taken[outcome["study"]] = {name: outcome[name] for name in names}
    text = json.dumps(dict(sorted(taken.items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


@cache
def record(name: str) -> dict[str, Any]:
    """A record of plain values."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


@cache
def table(name: str) -> pd.DataFrame:
    """A table of a record."""
    return pd.read_csv(RESULTS / name)


@cache
def claims(name: str) -> dict[str, Claim]:
    """The claims of a study by their titles: of its record, of the last full run, or made from a record on the spot."""
    if name in ("ntk/fig3", "ntk/fig7"):
        made = study(name).run(Request(jobs=1)).comparison
    elif (RESULTS / f"{name}.json").is_file():
        made = tuple(Claim(**claim) for claim in record(f"{name}.json")["claims"])
    else:
        made = tuple(Claim(**claim) for claim in record(CLAIMS)[name]["claims"])
    return {claim.what: claim for claim in made}


def reference_lines() -> list[str]:
    """The log of the runs of the first paper's code."""
    return (RESULTS / "scaling/reference.jsonl").read_text(encoding="utf-8").splitlines()


def find(pattern: str, text: str) -> tuple[float, ...]:
    """The numbers in the groups of all matches of a pattern, of which there must be one."""
    values = [float(group) for match in re.finditer(pattern, text) for group in match.groups()]
    assert values, f"{pattern} is not in {text}"
    return tuple(values)


def number(text: str) -> float:
    """The first number in a text."""
    return find(r"([-+]?\d[\d.]*(?:e[-+]?\d+)?)", text)[0]


# ---- sentences


def table1() -> Iterator[Held]:
    """Of table 1 beyond its slopes: fits, errors beside the reference code's, and what goes with the inputs."""
    errors, own = table("scaling/table1-errors.csv"), claims("scaling/table1")
    yield Held((README,), f"(`gatelab reproduce scaling/table1`, {len(errors)} fits)", ERRORS)
    friedman = errors[errors["problem"] == "friedman1"]
    best = friedman.groupby(["unit", "width"])["train_rmse"].min()
    runs = [run for run in map(json.loads, reference_lines()) if run["problem"] == "friedman1"]
    assert len(runs) == 4 and {(run["width"], run["seed"]) for run in runs} == {(8, 0), (16, 0)}
    times = [run["train_rmse"] / best[run["unit"], run["width"]] for run in runs]
    words, place = f"{min(times):.1f} to {max(times):.0f} times below", f"{ERRORS}, reference.jsonl"
    yield Held((README,), f"training errors {words} those of four logged runs of the paper's code", place)
    yield Held((CORRECTIONS,), f"Training errors on Friedman 1 are {words} four logged runs of its code", place)
    assert (friedman["width"].nunique(), friedman["seed"].nunique()) == (5, 2)
    waves = errors[errors["problem"] == "sin4x-sin4y"]
    assert (waves["width"].nunique(), waves["seed"].nunique()) == (7, 2)
    own_rows = errors[errors["problem"].str.startswith("friedman")]
    over = (own_rows["test_rmse"] / own_rows["train_rmse"]).groupby([own_rows["unit"], own_rows["width"] > 16]).median()
    # Of the wide ones half have test errors a half or more above those of training; of the narrow ones half do not.
    assert all(over[unit, True] > 1.5 for unit in ("glu", "gqu")), over
    yield Held((README,), "GLUs and GQUs of more than 16 neurons are limited by", ERRORS)
    inputs = own["slope times dim_x over the slope in one dimension, mlp and glu, paper's protocol"]
    low, high = find(r"table ([\d.]+) to ([\d.]+)", inputs.paper)
    ours, twelve, paper = find(r"are (\d+) of our (\d+) and (\d+) of the paper's 12", inputs.because)
    yield Held(
        (CORRECTIONS,),
        f"slope times inputs over the 1-D slope is {low:.2f} to {high:.2f}",
        TABLE1,
    )
    yield Held(
        (CORRECTIONS,),
        f"{paper:.0f} of its {twelve:.0f} cells within 25 % of 1, {ours:.0f} of ours",
        TABLE1,
    )
    paper_side, split = (
        own[f"problems on which the GLU is steeper than the MLP, {protocol}"].ours
        for protocol in ("paper's protocol", "true split")
    )
    assert "Friedman 2" not in paper_side
    yield Held(
        (CORRECTIONS,),
        f"Under its own protocol on {paper_side[:6]} (not on Friedman 2), on rows held out on {split[:6]}",
        TABLE1,
    )


def kernels() -> Iterator[Held]:
    """Of the second paper: condition numbers, steps, widths, models and gaps."""
    gains = table("ntk/steps-gains.csv").drop_duplicates("gated").set_index("gated")
    (relu, gelu, silu), bulk = (gains.loc[["glu", "geglu", "swiglu"], name] for name in ("condition", "bulk"))
    sizes = f"(n = {gains['n'].iloc[0]}, d = {gains['d'].iloc[0]}) and with {gains['width'].iloc[0]} neurons"
    yield Held((README,), f"On Gaussian data {sizes}", GAINS)
    yield Held((README,), f"kernel by {relu:.0f}, GELU's by {gelu:.0f}, SiLU's by {silu:.0f}", GAINS)
    factors = "{:.1f}, {:.1f} and {:.1f}".format(*bulk)
    yield Held((README,), f"All but a factor of {factors} of that is one eigenvalue", GAINS)
    yield Held(
        (CORRECTIONS,),
        f"of the {relu:.0f} by which it divides ReLU's κ (n = 1000, d = 500, m = 4096), all but {bulk.iloc[0]:.1f}",
        GAINS,
    )
    yield Held(
        (KERNELS,),
        f"of the {relu:.0f} that it divides the ReLU's by (n = 1000, d = 500), all but {bulk.iloc[0]:.1f}",
        GAINS,
    )
    row = table("ntk/steps-gains.csv").query("gated == 'glu' and target == 'random' and share == 0.01").iloc[0]
    yield Held(
        (CORRECTIONS,),
        f"gating's {row['condition']:.0f} in κ are {row['steps']:.0f} in steps, counted in continuous time "
        f"({row['flow']:.0f} for gradient flow)",
        GAINS,
    )
    yield Held(
        (CORRECTIONS,),
        f"the gain is {row['removed']:.1f} times and κ without that eigenvalue predicts",
        GAINS,
    )
    powers = [
        claims("ntk/steps")[f"exponent of log(1/ε) in the steps, {target} targets, rate 1/λ_max"].ours
        for target in ("random", "smooth")
    ]
    yield Held(
        (CORRECTIONS,),
        "its exponent of log(1/ε) is {:.1f} to {:.1f}".format(*map(float, powers)),
        "results/ntk/steps.json",
    )
    yield from widths()
    yield from early()
    yield from models()
    yield from gaps()


def widths() -> Iterator[Held]:
    """Eq. 5 and 8 at two widths and as laws."""
    fig4, laws = claims("ntk/fig4"), claims("ntk/width")
    five, eight = (
        [number(claim.ours) for claim in fig4.values() if claim.place.startswith(f"{name}, m =")]
        for name in ("eq. 5", "eq. 8")
    )
    places = "results/claims.json, ntk/fig4"
    yield Held((CORRECTIONS,), "Off by {:g} % at m = d, by {:g} % at m = 10 d".format(*five), places)
    yield Held((CORRECTIONS,), "at m = d = 100 it is off by {:g} %, at m = 10 d by {:g} %".format(*eight), places)
    yield Held((KERNELS,), "the whole kernel by {:g} % at m = d and {:g} % at m = 10 d".format(*five), places)
    yield Held((KERNELS,), "eq. 8, by {:g} % and {:g} %".format(*eight), places)
    yield Held((NTK_ROOM,), f"eq. 5 of the paper is off by {five[0]:g} %", places)
    for name, words in (("eq. 5", "the coefficient "), ("eq. 8", "")):
        claim = laws[f"how far {name} is off in drawn networks, against d/m"]
        low = claim.interval.partition(", power")[0]
        yield Held(
            (CORRECTIONS,),
            f"drawn networks have {words}{find('coefficient ([0-9.]+) of', claim.ours)[0]:.3f} {low}",
            WIDTH,
        )


def early() -> Iterator[Held]:
    """Corollary 4.2 over n and d."""
    own = claims("ntk/early")
    stage, targets = (
        own["ReLU falls faster at first, for n and d above their bounds"],
        own["random targets whose y·Ky is larger for ReLU"],
    )
    bounds = [f"{value:.2g}" for value in find(r"([\d.]+) \(\d+ of those run\)", stage.because)]
    larger, sizes = find(r"in (\d+) of (\d+) sizes", stage.ours)
    slower, below = find(r"ReGLU is faster in (\d+) of (\d+) sizes", stage.because)
    assert (larger, slower) == (sizes, below)
    places = "results/claims.json, ntk/early"
    yield Held(
        (CORRECTIONS,),
        f"tr K² is larger from n = {', '.join(bounds[:-1])} and {bounds[-1]} on at d = 5, 10, 20, 40 and 80",
        places,
    )
    yield Held((CORRECTIONS,), f"holds for {targets.ours.replace('%', ' %')} of random ones", places)
    yield Held(
        (CORRECTIONS,),
        f"In all of {sizes:.0f} sizes at twice these bounds or more ReLU is faster, "
        f"in all of {below:.0f} at half of them or less ReGLU",
        places,
    )


def models() -> Iterator[Held]:
    """Condition numbers of whole models."""
    lecun = [
        number(claim.ours)
        for claim in claims("ntk/fig3").values()
        if claim.what.endswith("LeCun weights") and "against" in claim.what
    ]
    words = f"{min(lecun):.0f} to {max(lecun):.0f} times"
    yield Held((README,), f"gating lowers the condition number {words} with LeCun's weights", MODELS)
    yield Held((CORRECTIONS,), f"With LeCun's weights, {words}.", MODELS)
    small = {
        what: claim.ours
        for what, claim in claims("ntk/fig3").items()
        if what.endswith("weights of deviation 0.02") and "against" in what
    }
    gpt2, vit = (
        [number(ours) for what, ours in small.items() if f"of {model} with" in what and "smaller" in ours]
        for model in ("GPT-2", "ViT")
    )
    ((larger, times),) = ((what, number(ours)) for what, ours in small.items() if "larger" in ours)
    assert len(gpt2) == 3 and len(vit) == 2 and "ViT with ReGLU" in larger
    gpt2_words, vit_words = f"{min(gpt2):.0f} to {max(gpt2):.0f} times", f"{min(vit):.1f} to {max(vit):.1f} times"
    yield Held((README,), f"it lowers GPT-2's {gpt2_words} and a ViT's {vit_words} with a GEGLU or SwiGLU", MODELS)
    yield Held((README,), f"a ViT's ReGLU alone has a *higher* one than its ReLU, {times:.1f} times", MODELS)
    yield Held((NTK_ROOM,), f"GPT-2's condition number falls {gpt2_words}", MODELS)
    yield Held((CORRECTIONS,), f"{gpt2_words} in GPT-2 and {vit_words} in a ViT with GEGLU or SwiGLU", MODELS)
    yield Held((CORRECTIONS,), f"has a *higher* κ than its ReLU, {times:.1f} times", MODELS)
    sizes = [
        run["parameters"]
        for run in record("ntk/models.json")["figure3"]
        if (run["model"], run["unit"]) == ("gpt2", "mlp")
    ]
    yield Held((README,), f"GPT-2 of {sizes[0] / 1e6:.0f} million parameters on text", MODELS)


def gaps() -> Iterator[Held]:
    """Gaps at equal loss on 10 000 images and on text, and what the optimiser does to them."""
    own = {
        what.partition("equal loss, ")[2]: claim
        for what, claim in claims("ntk/fig7").items()
        if what.startswith("gap of")
    }
    images = {name: claim for name, claim in own.items() if "CIFAR" in name}
    shares = [find(r"\(([-+]\d+)%\)", claim.ours)[0] for claim in images.values()]
    least = [find(r"\[([-+][\d.]+), ([-+][\d.]+)\]", claim.interval) for claim in images.values()]
    assert sum(low <= 0 <= high for low, high in least) == 1
    (text,) = (find(r"\(([-+]\d+)%\)", claim.ours)[0] for name, claim in own.items() if "GPT-2" in name)
    yield Held(
        (README,),
        "the gap between test and training loss at equal training loss is "
        f"{min(shares):.0f} to {max(shares):.0f} % *larger* with a ReGLU",
        GAP,
    )
    yield Held((README,), f"with a SwiGLU it is {-text:.0f} % smaller than with a SiLU", GAP)
    sizes = [run["parameters"] for run in record("ntk/gap.json")["runs"] if run["recipe"]["model"] == "gpt2"]
    yield Held((README,), f"(GPT-2 of {sizes[0] / 1e6:.0f} million parameters on text)", GAP)
    gate = [find(r"([-+][\d.]+) nats", claim.ours)[0] for name, claim in images.items() if "ViT" in name]
    optimiser = find(
        r"ReLU ([-+][\d.]+) nats", claims("ntk/fig7")["AdamW less SGD at equal loss, ViT on CIFAR-10"].ours
    )[0]
    yield Held(
        (CORRECTIONS,),
        f"ViT: AdamW less SGD {optimiser:.3f} nats, ReGLU less ReLU {min(gate):+.3f} to {max(gate):+.3f}",
        GAP,
    )


def linearisation() -> Iterator[Held]:
    """Of the third paper: polynomials, the floor, learned maps and a transformer."""
    taylor, best = (
        linearize("gelu", method, degree=10, interval=3.0).bound().measured for method in ("taylor", "minimax")
    )
    yield Held(
        (README,),
        f"Five Taylor terms of GELU are off by {taylor:.1f} on [-3, 3]; "
        f"the best polynomial of the same degree by {best:.5f}",
        "gl.linearize",
    )
    largest_gelu = float(torch.nn.functional.gelu(torch.tensor(3.0, dtype=torch.float64)))
    yield Held(
        (CORRECTIONS,),
        f"The error there, {taylor:.1f}, is {taylor / largest_gelu:.0%} of the largest GELU".replace("%", " %"),
        "gl.linearize",
    )
    yield Held(
        (README,),
        f"no 152 features come nearer to GELU(w.x) than RMSE {floor('gelu', 16, 152):.3f}",
        "gl.linearization.floor",
    )
    yield Held((CORRECTIONS,), f"the floor for m = 16 is {floor('gelu', 2, 16):.4f}", "gl.linearization.floor")
    yield Held(
        (CORRECTIONS,),
        f"The best polynomial of that degree is off by {best:.1e}".replace("e-0", "e-"),
        "gl.linearize",
    )
    repeated, once = (
        linearize("gelu", "taylor", degree=10, d=3, features=kind).m for kind in ("kronecker", "symmetric")
    )
    assert repeated == 66_432
    yield Held((CORRECTIONS,), f"Kronecker powers repeat monomials; {once} give the same function", "gl.linearize")
    series = claims("linearize/table3")["RMSE (Taylor vs. Tanh GELU)"]
    against = find(r"against its own function it is ([\d.]+\d)", series.because)[0]
    yield Held(
        (CORRECTIONS,),
        f"with tanh-GELU: {series.ours}; against its own function {against:.4f}",
        TABLE3,
    )
    learned = claims("linearize/learned2d")
    after = ", ".join(f"{number(learned[f'RMSE after {epochs} epochs'].ours):.2f}" for epochs in (3, 10, 30))
    yield Held((CORRECTIONS,), f"Over all pairs and five seeds: {after}.", LEARNED2)
    losses = find(
        r"([\d.]+) on .+, ([\d.]+) on", claims("linearize/learned16")["training loss over the steps (figure 1)"].ours
    )
    yield Held(
        (CORRECTIONS,),
        f"Its code defaults to m = 16, floor {floor('gelu', 16, 16) ** 2:.2f}: its recipe then ends at {losses[0]:.2f} "
        f"on its training data and at {losses[1]:.2f} on *new* data",
        LEARNED16,
    )
    page = flat(GQU_PAGE)
    roots = re.findall(r"no real roots at (\d+ of \d+) knots", page)[0]
    yield Held((CORRECTIONS,), f"at {roots} on equal cells", "docs/derivations/gqu-order-four.md, executed")
    tail = claims("linearize/transformer")["what one polynomial must serve"].ours
    largest, nearly = find(r"layer 1: \[[-\d.]+, ([\d.]+)\], 99.9% of \|z\| below ([\d.]+)", tail)
    yield Held(
        (CORRECTIONS,),
        f"pre-activations reach {largest:.0f} where nearly all lie below {nearly:.0f}",
        "results/linearize/transformer.json",
    )
    yield from smooth_gates()


def smooth_gates() -> Iterator[Held]:
    """A smooth gate on Friedman's first problem beside the ReLU's."""
    fits = record("scaling/smooth.json")["fits"]
    best = {unit: min(fit["train_rmse"] for fit in fits if fit["unit"] == unit) for unit in ("swiglu", "glu")}
    words = {unit: f"{value:.0e}".replace("e-0", "e-") for unit, value in best.items()}
    yield Held(
        (README,),
        f"a SwiGLU of 16 neurons fits Friedman's first problem to {words['swiglu']} of its deviation, where the "
        f"ReLU-gated GLU has {words['glu']}",
        "results/scaling/smooth.json",
    )
    gpu = record("gpu.json")
    seconds = f"take {gpu['cuda_seconds']:.0f} seconds, {gpu['ratio']:.0f} times less than on two cores"
    yield Held((README,), seconds, "results/gpu.json")
    by_device = {fit["device"]: fit["seconds"] for fit in gpu["classifier"]}
    defaults = f"take {gpu['regressor'][0]['seconds']:.1f} s for a regression and {by_device['cuda']:.1f} s for a "
    defaults += "classification of 10 000 rows and 20 columns "
    yield Held((ESTIMATORS_ROOM,), f"{defaults}({by_device['cpu']:.1f} s on 16 cores beside it)", "results/gpu.json")
    share = f"reach {gpu['share_in_blocks']:.0%} of the card's float64 rate".replace("%", " %")
    yield Held((ESTIMATORS_ROOM,), share, "results/gpu.json")


def estimates() -> Iterator[Held]:
    """The paper's estimates of condition numbers and ours, over what was measured, n in proportion to d."""
    own = claims("ntk/fig2")
    least = min(
        find(r"^([\d.]+) to", claim.ours)[0]
        for what, claim in own.items()
        if what.startswith("the paper's estimate of κ over the m")
    )
    ours = {
        unit: max(
            abs(value - 1)
            for value in find(
                r"([\d.]+) to ([\d.]+)", own[f"our estimate of κ over the measured, {unit}, n in proportion to d"].ours
            )
        )
        for unit in ("ReLU", "ReGLU")
    }
    places = "results/claims.json, ntk/fig2"
    yield Held((README,), f"are, as we derived them again, up to {1 / least:.0f} times too small; ours", places)
    yield Held(
        (README,),
        f"are within {ours['ReGLU']:.0%} for n from d/2 to 4 d, and within {ours['ReLU']:.0%} for ReLU".replace(
            "%", " %"
        ),
        places,
    )
    yield Held((CORRECTIONS,), f"they are up to {1 / least:.0f} times too small", places)
    yield Held((CORRECTIONS,), f"within {ours['ReGLU']:.0%} for n from d/2 to 4d".replace("%", " %"), places)
    yield Held((CORRECTIONS,), f"up to {1 / least:.0f} times, and for ReGLU also for n < 2d", places)


def pages() -> Iterator[Held]:
    """Of the pages of rooms, derivations and words, what is no output of their own code."""
    (times, share, plain), (again, _, later) = (over_plain(f"ladder/{name}.json") for name in ("plain", "speed"))
    slower = plain / later
    yield Held(
        (LADDER_ROOM,),
        f"{times.min():.1f} to {times.max():.1f} times as many tokens a second as a plain compiled loop trains with "
        f"one (`results/ladder/plain.json`; {times.idxmin()[:-1]} and {times.idxmax()[:-1]} million parameters), "
        f"and uses {share['26M']:.0f} % of its bf16 rate at 26 million parameters, {share['0.4M']:.0f} % at 0.4",
        "results/ladder/plain.json",
    )
    for words in (
        f"was {slower.min():.1f} to {slower.max():.1f} times slower than in the run before",
        f"the ratio is {again.min():.1f} to {again.max():.1f} in that run",
    ):
        yield Held((LADDER_ROOM,), words, "results/ladder/plain.json, speed.json")
    timed = [row for row in record("ladder/speed.json")["rows"] if row["size"] == "26M" and "milliseconds" in row]
    kernels = timed[0]["milliseconds"]
    words = f"of {sum(kernels.values()):.1f} milliseconds of a step's kernels, products take "
    words += f"{kernels['products']:.1f}, attention {kernels['attention']:.1f}, compiled passes "
    words += f"{kernels['passes']:.1f} and the update {kernels['update']:.1f}"
    yield Held((LADDER_ROOM,), words, "results/ladder/speed.json")
    best = linearize("gelu", "minimax", degree=8, interval=5.0).polynomial
    assert best is not None
    near, far = (abs(float(best(z)) - z) for z in (6.25, 10.0))  # where GELU(z) is z
    yield Held(
        (LINEARIZE_ROOM,), f"is off by {near:.0f} at 6.25 and by {float(f'{far:.1g}'):.0f} at 10", "gl.linearize"
    )


def over_plain(name: str) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Of swiglu by size: tokens a second of three over a plain loop's, percents of the bf16 rate, the plain loop's."""
    rows = speed_rows(record(name))
    rows = rows[rows["unit"] == "swiglu"]
    plain = rows[rows["loop"] == "plain"].set_index("size")["tokens_per_second"]
    three = rows[rows["models"] == 3].set_index("size")
    return three["tokens_per_second"] / plain, 100 * three["share_of_bf16"], plain


# ---- the ladder


@cache
def ladder_texts() -> dict[str, str]:
    """What the record of the ladder says, for each document that has it: a paragraph, and for its room a table too."""
    climbs = enwik8.read_climbs()
    tables = enwik8.tables_of(climbs)
    words = f"**Which unit, in a language model?** {enwik8.headline(climbs, tables)}"
    paragraphs = {
        document: filled(f"{words} {SUPERSEDED.format(link=link)} Try it: `gatelab ladder --quick`.")
        for document, link in ((README, "docs/results/ladder-design.md"), (LADDER_ROOM, "../results/ladder-design.md"))
    }
    details = filled(enwik8.details(climbs, tables))
    rows = ["| text read | size | unit | lr | bits a byte | above the best |", "|---|---|---|---|---|---|"]
    for row in tables["bits"].to_dict("records"):
        above = "-" if row["unit"] == row["best"] else enwik8.excess_words(row)
        size = row["size"] if row["swept"] else f"{row['size']}, no sweep"
        cells = (row["repeats"], size, row["unit"], f"{row['lr']:.3g}", enwik8.bits_words(row), above)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    laws = law_rows(climbs.once)
    claims = enwik8.claims_of(climbs, tables)
    listed = [
        f"- {claim.what}: {f'{claim.ours} {claim.interval}'.strip()} ({verdict_words(claim)})" for claim in claims
    ]
    made = ("\n".join(laws), "\n".join(rows), "\n".join(listed), "\n".join(speed_lines()))
    parts = (paragraphs[LADDER_ROOM], details, *filter(None, made))
    return {README: paragraphs[README], LADDER_ROOM: "\n\n".join(parts)}


def verdict_words(claim: Claim) -> str:
    """The verdict, and what others say."""
    return claim.verdict if claim.paper == "-" else f"{claim.verdict}; others: {claim.paper}"


def speed_lines() -> list[str]:
    """Tokens a second by size, as Markdown: of swiglu beside a plain loop, and of all units in a later run."""
    alone, together = (speed_rows(record(f"ladder/{name}.json")) for name in ("plain", "speed"))
    three = together[together["models"] == 3].set_index(["unit", "size"])
    units = list(dict.fromkeys(together["unit"]))
    lines = [
        "Millions of tokens a second on an H200, and the share of its bf16 rate; all units are of the later run:",
        "",
    ]
    heads = ["size", "plain loop, one swiglu", "one swiglu", "three swiglus", *(f"three of {unit}" for unit in units)]
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for size in LADDER_SIZES:
        own = alone[alone["size"] == size].set_index(["loop", "models"])
        measured = [own.loc[key] for key in (("plain", 1), ("gatelab", 1), ("gatelab", 3))]
        measured += [three.loc[(unit, size)] for unit in units]
        cells = [f"{row['tokens_per_second'] / 1e6:.2f}, {100 * row['share_of_bf16']:.0f} %" for row in measured]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return lines


def law_rows(regime: Regime) -> list[str]:
    """The table of exponents and offsets with intervals, the steepest unit first; nothing where there is no law."""
    laws = regime.law()
    if isinstance(laws, str):
        return []
    references = [unit for unit in (enwik8.REFERENCE, enwik8.RIVAL) if unit in laws.losses.units]
    heads = [
        "unit",
        "exponent",
        "over the mean of all",
        *(f"in parameters of {unit}, one exponent" for unit in references),
    ]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    exponents = dict(zip(laws.losses.units, laws.laws["exponent"].exponent, strict=True))
    for unit, ratio in enwik8.steepest_first(laws).items():
        worth = ["-" if unit == other else f"{laws.worth(unit, other).overall:.2f}" for other in references]
        rows.append(f"| {' | '.join([unit, f'{exponents[unit]:.3f}', f'{ratio:.3f}', *worth])} |")
    return rows


def filled(words: str) -> str:
    """A paragraph in lines."""
    return textwrap.fill(words, 150, break_long_words=False, break_on_hyphens=False)


def without_link(paragraph: str) -> str:
    """A paragraph on one line, up to the link that it ends with."""
    return " ".join(paragraph.split()).partition(" [docs")[0]


@cache
def made_texts() -> dict[str, str]:
    """What stands between the two lines of each document that has them."""
    texts = {**ladder_texts(), SHRINK_ROOM: shrink_text(), ESTIMATORS_ROOM: estimators_text()}
    texts[README] = "\n\n".join((texts[README], shrink_paragraph(), tables_paragraph()))
    return texts


def with_made(document: str) -> str:
    """A document as it is to be: what stands between the two lines is that of the record."""
    text = (ROOT / document).read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{document} lacks the lines {BEGIN} and {END}"
    return f"{before}{BEGIN}\n{made_texts()[document]}\n{END}{after}"


def ladder() -> Iterator[Held]:
    """What was written out of the record of the ladder."""
    for document, text in ladder_texts().items():
        for part in text.splitlines() if document == LADDER_ROOM else [text]:
            if words := " ".join(part.partition("([ladder-design")[0].split()):
                yield Held((document,), words, LADDER)
    trainings = plain_frame(Ladder.read(RESULTS / "ladder/enwik8.json").trainings)
    tested = trainings[trainings["part"] == "test"]
    once = tested[tested["repeats"] == 1]
    bits = once.groupby(["unit", "size", "lr"])["loss"].mean() / BITS
    gains = {key: rates.iloc[-1] - rates.iloc[0] for key, rates in bits.groupby(["unit", "size"])}
    words = f"gqu has {gains['gqu', '11M']:.3f} bits less than before at 11M and {gains['gqu', '26M']:.3f} at 26M"
    words += f", swiglu {gains['swiglu', '11M']:.3f} and {gains['swiglu', '26M']:.3f}"
    below = [abs(gain) for (_, size), gain in gains.items() if size in LADDER_SIZES[:3]]
    words += f"; at smaller sizes losses moved by {max(below):.3f} at most"
    yield Held((LADDER_ROOM,), words, "results/ladder/enwik8.json")
    own = tested[(tested["unit"] == "relu2") & (tested["size"] == "11M")]
    first, again = (own[own["repeats"] == repeats]["lr"].max() for repeats in (1, 20))
    words = f"(relu2 at 11M climbed at {first:.3g} once and at {again:.3g} repeated)"
    yield Held((LADDER_ROOM,), words, "results/ladder/enwik8.json")
    seeds = record("ladder/seeds.json")["rows"]
    told = [f"{row['attention']} {np.mean(row['bits']):.3f} and {np.std(row['bits'], ddof=1):.3f}" for row in seeds]
    yield Held((LADDER_ROOM,), f"mean and standard deviation: {'; '.join(told)}", "results/ladder/seeds.json")


# ---- smaller models

MODEL_WORDS = {
    "stories260k": (
        "**stories260K**, a Llama of 260 thousand weights, on what it wrote itself: {calibration_tokens} tokens for "
        "calibration and {test_tokens} of another seed for the test. Excess of the log perplexity in nats a token:"
    ),
    "smollm2": (
        "**SmolLM2-135M-Instruct** (30 SwiGLU blocks, 4-bit weights), FineWeb-Edu: {calibration_tokens} tokens for"
        " calibration, the last {test_tokens} of the sample for the test. Excess of the log perplexity in "
        "nats a token:"
    ),
    "minilm": (
        "**MiniLM** (6 GELU blocks), FineWeb-Edu: {calibration_tokens} tokens for calibration. One less the mean "
        "cosine of the embeddings of 256 sentences that were not used with those of the whole model:"
    ),
}


WIDE_WORDS = (
    "The same smaller models of SmolLM2-135M-Instruct on {tokens} tokens of the sample that lie between calibration "
    "and test, with 95 % intervals over windows of {length} tokens:"
)
UNPAIRED = (
    "- ours minus surgeon, paired over windows: not known, since this record was made before `benchmarks/shrinking.py` "
    "kept the losses of single windows; intervals of two columns that overlap decide nothing"
)


def shrink_text() -> str:
    """A table for each model, that of more tokens for SmolLM2, shares of rivals' losses, and paired differences."""
    return "\n\n".join((shrink_table("stories260k"), shrink_table("smollm2"), wide_table(), shrink_table("minilm")))


def lost(cell: dict[str, Any]) -> float:
    """What a smaller model has lost: nats a token, or one less the cosine of embeddings."""
    if cell["measure"] == "cosine":
        return 1 - cell["sentences"]
    return cell["after"] - cell["before"]


def shrink_table(model: str) -> str:
    """The table of a model, a row for each share of neurons that stay and a column for each method."""
    content = record(SHRUNKEN[model])
    losses = {key: lost(cell) for key, cell in content["cells"].items() if key.startswith(f"{model}:")}
    sizes = {name: spaced(value) for name, value in content["settings"].items()}
    shown = {key: f"{loss:.3f}" for key, loss in losses.items()}
    table = loss_table(MODEL_WORDS[model].format(**sizes), losses, shown)
    return "\n".join([table, *paired_lines(content["cells"], losses)])


def paired_lines(cells: dict[str, Any], keys: Iterable[str]) -> Iterator[str]:
    """Ours minus surgeon, window by window, before and after a distillation, where the record has the windows."""
    for ours in keys:
        rival = ours.replace(":ours", f":{COMBINED}")
        if rival == ours or not all("windows" in cells.get(key, {}) for key in (ours, rival)):
            continue
        gap = t_interval(np.subtract(cells[ours]["windows"], cells[rival]["windows"]))
        _, keep, method = ours.split(":")
        count = len(cells[ours]["windows"])
        words = f"{method} minus {rival.split(':')[2]} at keep {keep}, paired over {count} windows"
        yield f"- {words}: {gap:+.3f} nats a token"


def wide_table() -> str:
    """What SmolLM2's cells lose on more tokens, with intervals; magnitude, which is hopeless, is left out."""
    content = record(SHRUNKEN["smollm2"])
    wide = {key: wide_loss(cell) for key, cell in content["cells"].items() if "wide" in cell and "magnitude" not in key}
    (tokens,) = {cell["wide"]["tokens"] for cell in content["cells"].values() if "wide" in cell}
    words = WIDE_WORDS.format(tokens=spaced(tokens), length=content["settings"]["length"])
    losses = {key: interval.value for key, interval in wide.items()}
    table = loss_table(words, losses, {key: format(interval, ".3f") for key, interval in wide.items()})
    paired = [*paired_lines({key: content["cells"][key]["wide"] for key in wide}, wide)]
    return "\n".join([table, *(paired or [UNPAIRED])])


def shrink_figure() -> Figure:
    """What SmolLM2 loses on more tokens by how many neurons are gone; methods are a little apart, as intervals are."""
    cells = record(SHRUNKEN["smollm2"])["cells"]
    looks = {
        "wanda": (GREY, "v", ":"), "flap": (GREY, "^", "--"), "surgeon": (NEURON_COLOURS[1], "s", "-"),
        "ours": (NEURON_COLOURS[0], "o", "-"), "ours balanced": (NEURON_COLOURS[5], "D", "-"),
        "surgeon + 12M own text": (NEURON_COLOURS[1], "s", "--"), "ours + 12M own text": (NEURON_COLOURS[0], "o", "--"),
    }  # fmt: skip
    series = []
    for order, (method, (colour, marker, line)) in enumerate(looks.items()):
        keeps = [keep for keep in (0.9, 0.8, 0.7, 0.6) if f"smollm2:{keep}:{method}" in cells]
        losses = [wide_loss(cells[f"smollm2:{keep}:{method}"]) for keep in keeps]
        value, low, high = np.array([(loss.value, loss.low, loss.high) for loss in losses]).T
        gone = 100 * (1 - np.array(keeps)) + 0.25 * (order - 3)
        series.append(Series(method, gone, value, low, high, colour, marker, line, hollow="own text" in method))
    with style():
        place = canvas(5.8, 4.6)
        (panel,) = place.panels
        draw_series(panel, series, x_log=False)
        panel.set(xlabel="neurons gone, %", ylabel="log perplexity lost, nats a token")
        panel.axes.set_xticks([10, 20, 30, 40])
        plain_values(panel)
        legend_below(panel, [one.entry() for one in series], columns=3)
    return place.figure


def wide_loss(cell: dict[str, Any]) -> Interval:
    """What a cell of SmolLM2 loses on more tokens."""
    return Interval(*(cell["wide"][name] for name in ("value", "low", "high")))


def spaced(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}".replace(",", " ")


def loss_table(words: str, losses: dict[str, float], shown: dict[str, str]) -> str:
    """Words, the table of the losses of a model's cells, and what they are of the best published and of surgeon's."""
    rows: dict[str, dict[str, str]] = {}
    for key in losses:
        _, keep, method = key.split(":")
        rows.setdefault(keep, {})[method] = key
    methods = [method for method in (*PUBLISHED, COMBINED, *OURS) if any(method in row for row in rows.values())]
    lines = [words, "", f"| keep | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    shares: list[str] = []
    for keep, row in sorted(rows.items(), reverse=True):
        values = [shown[row[method]] if method in row else "-" for method in methods]
        lines.append(f"| {keep} | {' | '.join(values)} |")
        best = min((method for method in PUBLISHED if method in row), key=lambda method: losses[row[method]])
        for rival, words in ((best, f"{best}'s loss, the best published,"), (COMBINED, "surgeon's loss")):
            others = [method for method in (COMBINED, *OURS) if method in row and method != rival]
            parts = [f"{method} {losses[row[method]] / losses[row[rival]]:.2f}" for method in others]
            shares.append(f"- of {words} at keep {keep}: {', '.join(parts)}")
    return "\n".join([*lines, "", *shares])


def shrink_paragraph() -> str:
    """What a smaller SmolLM2 costs after a distillation from either start, and before it, for the README."""
    content = record(SHRUNKEN["smollm2"])
    told: list[str] = []
    for keep, share in (("0.8", "a fifth"), ("0.6", "two fifths")):
        cells = {key.split(":")[2]: c for key, c in content["cells"].items() if key.startswith(f"smollm2:{keep}:")}
        losses = {method: wide_loss(cell) for method, cell in cells.items() if "wide" in cell}
        best = min((method for method in PUBLISHED if method in losses), key=lambda method: losses[method].value)
        starts = (COMBINED, "ours")
        after = " and ".join(f"{losses[f'{start} + 12M own text']:.3f} from {start}" for start in starts)
        before = " and ".join(f"{losses[start]:.3f}" for start in starts)
        told.append(
            f"without {share} of the neurons {after}, against {before} before it and {losses[best]:.3f} by the best of"
            f" three published methods ({best})"
        )
    tokens = spaced(content["settings"]["calibration_tokens"])
    return filled(
        "**A model's blocks made smaller.** A distillation does most of it, from either start: what "
        "SmolLM2-135M-Instruct (4-bit weights) loses after it on 12 million tokens that the model writes itself, in "
        f"nats a token on {spaced(cells['ours']['wide']['tokens'])} tokens, with {tokens} tokens of text at hand: "
        f"{'; '.join(told)}. Surgeon is our combination of ZipLM's order and FASP's refit. For calibration text "
        "that a model writes itself see arXiv 2410.17711, for distillation on such text arXiv 2410.09982. Plain "
        "Transformers loads what is saved: `gatelab shrink`, `gatelab profile`, "
        "[docs/rooms/shrink.md](docs/rooms/shrink.md)."
    )


def smaller() -> Iterator[Held]:
    """What was written out of the records of smaller models."""
    yield Held((README,), without_link(shrink_paragraph()), SHRINK)
    for line in shrink_text().splitlines():
        if line.strip():
            yield Held((SHRINK_ROOM,), " ".join(line.split()), SHRINK)


# ---- estimators on tables


@dataclass(frozen=True)
class Tables:
    """The fits of a record of tables whose parts are complete, ours of the latest code alone.

    Attributes:
        entries: a row a fit.
        errors: the mean error of each set (rows) and method (columns).
        tuned: the sets that defaults were chosen on.
        words: what the error is called.
    """

    entries: pd.DataFrame
    errors: pd.DataFrame
    tuned: frozenset[str]
    words: str

    @property
    def ratios(self) -> pd.DataFrame:
        """Errors over the least of the set, of the methods that are compared."""
        compared = self.errors.drop(columns="gated-1", errors="ignore")
        return compared.div(compared.min(axis=1), axis=0)


@cache
def tables_of(name: str) -> Tables:
    """What `results/tables` has of regressors or classifiers."""
    field, words = TABLES[name]
    entries = pd.DataFrame(record(f"tables/{name}.json")["entries"]).dropna(subset=field)
    for method in ("gated", "gated-1"):
        own = entries[entries["method"] == method].sort_values("ended")
        if len(own):
            entries = entries[(entries["method"] != method) | (entries["version"] == own["version"].iloc[-1])]
    parts = entries.groupby(["set", "method"])[field].agg(["mean", "count"])
    errors = parts.loc[parts["count"] == parts["count"].max(), "mean"].unstack()
    errors = errors.dropna(subset=["gated"])
    errors = errors[errors.drop(columns="gated-1", errors="ignore").notna().sum(axis=1) > 1]
    tuned = frozenset(dataset.name for dataset in chosen(TASKS[name]) if dataset.development)
    return Tables(entries, errors, tuned, words)


def estimators_text() -> str:
    """For regressors and for classifiers: what came out, and errors over the least of the set."""
    parts = [f"{estimator_standing(name)} {estimator_costs(name)}\n\n{estimator_table(name)}" for name in TABLES]
    return "\n\n".join([*parts, ELSEWHERE_ON_TABLES, large_tables()])


def large_tables() -> str:
    """What the regressor takes on large tables, beside boosting."""
    content = record("tables/large.json")
    told: list[str] = []
    for ours, boosting in zip(content["rows"][::2], content["rows"][1::2], strict=True):
        size = f"{ours['rows']:,} rows of {ours['columns']} columns".replace(",", " ")
        told.append(
            f"{size}: {ours['cpu_s']:.0f} CPU seconds, {ours['mib']:.0f} MiB, RMSE {ours['rmse']:.3f} (boosting "
            f"{boosting['cpu_s']:.1f}, {boosting['mib']:.0f} and {boosting['rmse']:.3f})"
        )
    return (
        f"Larger tables, Friedman's first problem with noise of deviation 1, one ARM core: {'; '.join(told)}. The last "
        "with `time_budget=150`."
    )


def estimator_table(name: str) -> str:
    """Errors of the methods on each set that ours has, over the least of all methods there; a star is a tuned set."""
    ratios, tuned = tables_of(name).ratios, tables_of(name).tuned
    rows = [f"| set | methods | {' | '.join(COMPARED.values())} |", "|---" * (2 + len(COMPARED)) + "|"]
    for which, row in ratios.sort_values("gated", kind="stable").iterrows():
        cells = [f"{row[method]:.3g}" if row[method] == row[method] else "-" for method in COMPARED]
        star = " *" if which in tuned else ""
        rows.append(f"| {which}{star} | {row.notna().sum()} | {' | '.join(cells)} |")
    return "\n".join(rows)


def untuned(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors and fits of the sets that were not used for tuning defaults."""
    fits = tables_of(name)
    errors = fits.errors[~fits.errors.index.isin(fits.tuned)]
    return errors, fits.entries[fits.entries["set"].isin(errors.index)]


def medians(entries: pd.DataFrame, column: str) -> pd.Series:
    """The median over sets of what a method takes."""
    return entries.groupby(["method", "set"])[column].mean().groupby("method").median()


def estimator_standing(name: str) -> str:
    """How often ours is first, how far behind boosting it is, and how long it takes."""
    errors, entries = untuned(name)
    first = (tables_of(name).ratios.loc[errors.index, "gated"] <= 1.02).sum()
    behind = errors["gated"] / errors[["boosting", "lightgbm"]].min(axis=1)
    seconds = medians(entries, "cpu_s")
    lost = (errors["gated"] / errors["extra"]).sort_values(ascending=False, kind="stable")
    lost = lost[lost > 1]
    places = ", ".join(f"{which} {ratio:.2f}" for which, ratio in lost.items())
    return (
        f"Of {len(errors)} sets not used for tuning defaults, ours is first or within 2 % of the least "
        f"{tables_of(name).words} on {first}; beside the better boosting it is {behind.max():.2f} at worst "
        f"({behind.idxmax()}), {math.exp(np.log(behind).mean()):.2f} in the geometric mean. Extra trees "
        f"have a smaller error on {len(lost)} (ours over theirs: {places}). A fit takes "
        f"{seconds['gated']:.1f} CPU seconds, the median over these sets; HistGradientBoosting "
        f"{seconds['boosting']:.1f}."
    )


def estimator_costs(name: str) -> str:
    """Memory, what more members bring, and how often targets lie where the standard deviations say."""
    errors, entries = untuned(name)
    memory = medians(entries, "peak_mib")
    sentences = [f"Memory rises by {memory['gated']:.0f} MiB, boosting's by {memory['boosting']:.1f}."]
    if "gated-1" in errors:
        both = errors.dropna(subset=["gated-1"])
        more = t_interval(np.log(both["gated-1"] / both["gated"]).to_numpy())
        times = f"{math.exp(more.value):.2f} [{math.exp(more.low):.2f}, {math.exp(more.high):.2f}] times"
        sentences.append(
            f"One member instead of eight has {times} the {tables_of(name).words} (geometric mean of {len(both)} sets) "
            f"and takes {medians(entries, 'cpu_s')['gated-1']:.1f} CPU seconds."
        )
    if "coverage" in entries:
        covered = 100 * entries[entries["method"] == "gated"].groupby("set")["coverage"].mean()
        sentences.append(
            f"Of the targets {covered.median():.0f} % lie within 1.96 of its standard deviations (median of the sets; "
            f"{covered.min():.0f} % on {covered.idxmin()} to {covered.max():.0f} % on {covered.idxmax()})."
        )
    return " ".join(sentences)


def tables_paragraph() -> str:
    """What the estimators reach on tables, for the README."""
    return filled(
        f"**On tables.** `GatedRegressor()`: {estimator_standing('regressors')} `GatedClassifier()`: "
        f"{estimator_standing('classifiers')} {ELSEWHERE_ON_TABLES} When to take trees instead: "
        "[docs/rooms/estimators.md](docs/rooms/estimators.md)."
    )


def estimators() -> Iterator[Held]:
    """What was written out of the records of estimators."""
    yield Held((README,), without_link(tables_paragraph()), "results/tables")
    for line in estimators_text().splitlines():
        if line.strip():
            yield Held((ESTIMATORS_ROOM,), " ".join(line.split()), "results/tables")


# What tests of their own compare: the sentence as it stands, its record, and the test.
ELSEWHERE: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "test_how_many_slopes_our_newton_gives_is_counted_by_the_study",
        "results/scaling/paper-method.json",
        (
            (
                README,
                "6 of the paper's 15 slopes are reproduced and 9 differ",
            ),
            (
                README,
                "4.8 to 46 times the error at the optimum",
            ),
            (
                README,
                "over the same widths the optimum is steeper for 13 of 15",
            ),
            (
                README,
                "our Newton has -0.09 (MLP) and -0.32 (GLU), the optimum -0.50 and -0.81",
            ),
            (
                CORRECTIONS,
                "6 of the 15 slopes are reproduced and 9 differ; for the widest synthetic networks it ends at 4.8 to "
                "46 times the error at the optimum",
            ),
            (
                CORRECTIONS,
                "our Newton -0.32 and -0.09, the optimum -0.81 and -0.50",
            ),
        ),
    ),
    (
        "test_slopes_in_many_dimensions_are_those_of_the_record",
        TABLE1,
        (
            (
                README,
                "slopes of -1.44 (MLP), -1.70 (GLU) and -2.06 (GQU)",
            ),
            (
                README,
                "his third: -0.98, -1.40 and -1.77. sin 4x sin 4y: -1.51, -2.11 and -2.25",
            ),
            (
                README,
                "(Friedman's third problem: -0.98 becomes -0.56; airfoil, n = 2 to 32: -0.39 becomes -0.26). On "
                "airfoil the GLU's -0.50 becomes -0.27",
            ),
            (
                README,
                "is undecided: -0.17 [-0.75, 0.41]",
            ),
            (
                CORRECTIONS,
                "-1.51 / -2.11 and -1.44 / -1.70 (MLP / GLU)",
            ),
            (
                CORRECTIONS,
                "On rows held out airfoil's GLU has -0.27, not -0.50",
            ),
        ),
    ),
    (
        "test_what_the_readme_says_of_steps_is_in_the_record",
        "results/ntk/steps-prediction.csv, steps-gains.csv",
        (
            (
                README,
                "correlations 0.95 to 0.99 against 0.88 to 0.93), and the 327 are 424 in steps to 1 % of the loss, "
                "counted in continuous time (360 for gradient flow)",
            ),
        ),
    ),
    (
        "test_what_the_readme_says_of_steps_is_in_the_record",
        GAINS,
        (
            (
                README,
                "the gain is 4.5 times",
            ),
        ),
    ),
    (
        "test_what_the_readme_says_of_steps_is_in_the_record",
        "results/ntk/steps-prediction.csv",
        (
            (
                README,
                "half the cases take less than 0.40 of it (random targets) or 0.28 (smooth ones)",
            ),
        ),
    ),
    (
        "test_trainings_and_sizes_are_those_of_the_records",
        "results/ntk/gap.json, gap-whole.json, gap-whole-constant.json",
        (
            (
                README,
                "270 trainings on a GPU",
            ),
        ),
    ),
    (
        "test_trainings_and_sizes_are_those_of_the_records",
        GAP,
        (
            (
                README,
                "Mixer of 0.8 and ViT of 1.2 million parameters",
            ),
        ),
    ),
    (
        "test_what_the_readme_says_of_all_images_is_in_the_record",
        "results/ntk/gap-whole.json",
        (
            (
                README,
                "120 trainings) the best test loss is lower with a gate than without in 6 of 12 comparisons after "
                "Holm's correction",
            ),
            (
                README,
                "(single 95 % intervals would say 9)",
            ),
            (
                README,
                "the 50 000 images are read 11.5 times",
            ),
            (
                CORRECTIONS,
                "At one untuned rate and 11.5 epochs of all of CIFAR-10",
            ),
        ),
    ),
    (
        "test_trainings_and_sizes_are_those_of_the_records",
        "results/ntk/gap-whole-constant.json",
        (
            (
                README,
                "With 60 more trainings at a constant learning rate",
            ),
        ),
    ),
    (
        "test_what_is_said_after_holms_correction_is_in_the_study",
        "ntk/appendix-d-whole",
        (
            (
                README,
                "in 8 of 18 comparisons and the gap at equal training loss *larger* in 7 of 18, by 0.009 to 0.019 nats",
            ),
            (
                CORRECTIONS,
                "on all 50 000 a gate's is lower in 8 of 18",
            ),
            (
                CORRECTIONS,
                "it adds 0.009 to 0.019 nats in the 7 of 18 comparisons",
            ),
            (
                CORRECTIONS,
                "and 11 are undecided. All 7 are with AdamW, which the appendix does not have. Best test losses there "
                "are 0.74 to 1.07",
            ),
        ),
    ),
    (
        "test_what_corrections_says_of_test_loss_is_in_the_record_of_10000_images",
        GAP,
        (
            (
                CORRECTIONS,
                "on 10 000 images a ReGLU's is higher in 3 of 4 comparisons",
            ),
            (
                CORRECTIONS,
                "Last step: Mixer, SGD 1.07 and 1.50; ViT, SGD 1.28 and 1.33; GPT-2 +0.34 nats "
                "[-0.26, +0.94]. Best checkpoint: GPT-2 -0.079 nats [-0.116, -0.042]",
            ),
        ),
    ),
)


def elsewhere() -> Iterator[Held]:
    """What tests of tests/test_readme.py compare."""
    for test, place, sentences in ELSEWHERE:
        for document, sentence in sentences:
            yield Held((document,), sentence, place, f"test_readme.py::{test}")


# ---- what measures nothing

# Phrases whose numbers are sizes, ranges, definitions, theory or the paper's own; each must be in its document.
NOT_MEASURED: dict[str, tuple[str, ...]] = {
    README: (
        "Python 3.11",
        "on their way to -2, -3 and -4",
        "The GQU's order 4, which",
        "for widths 50 to 200",
        "at 3n+1 parameters instead of 5n+1 and 7n+1",
        "Friedman's first problem, 2000 points",
        "where the paper has -0.55 and -1.00 and nothing",
        "over widths 1 to 50. Its code has them",
        "(59 % of SmolLM2-135M-Instruct's, embeddings included)",
        "(8 and 16 neurons, one seed each)",
        "for its -0.91 and -1.55",
        "limited by 2000 points",
        "With the usual deviation of 0.02",
        "the condition number falls towards 1 with every one",
        "is a bound: to 1 %",
        "With 10 000 images of CIFAR-10",
        "one of the four intervals contains 0",
        "With all 50 000 images",
        "(ours has momentum 0.9)",
        "For 16 inputs with unit weights",
        "256 GLUs of width 32 on 10 000 points",
    ),
    CORRECTIONS: (
        "Order 4 is attained by a construction",
        "for n = 50 to 200. The paper's code",
        "Airfoil over the code's widths, n = 10 to 100 (GLU) and to 214 of its 500 (MLP",
        "at 3n+1 parameters instead of 5n+1 and 7n+1",
        "Medians over n >= 10 in the study",
        "since neuron i is 0 at its own knot",
        "eq. 11 to 13, which have it, hold. Eq. 8 adds a cell [-h, 0]",
        "makes cells of 1/(n - 1); eq. 9 and 14 count n cells",
        "Training errors on Friedman 1",
        "those of 1 + n/d",
        "a coefficient that is 1 for orthogonal samples and 0 for equal ones",
        "only for m ≫ 10 d",
        "where 10 000 images are overfitted",
        "With deviation 0.02",
        "and never with 2 or 3 inputs",
        "single polynomials of degree 12 or less",
        "eq. 1 has a stray t in the integrand; 3.1.3 drops the power 2n + 2",
        "of eq. 3 are shifted by one",
        "eq. 5 must concatenate, not add; Algorithm 1's counter",
        '"The estimates understate κ 1.5 to 3.5 times for n >= 2d"',
    ),
}


def prose(document: str) -> str:
    """What a document says on one line: without code, formulas and links, and without what the papers say."""
    text = (ROOT / document).read_text(encoding="utf-8").partition("## What is reproduced")[0]
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    # The first column of the corrections is the paper's.
    lines = [re.sub(r"^\| .*? \| ", "| ", line) for line in lines]
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"\$[^$]*\$", " ", "\n".join(lines)))
    return " ".join(text.split())


# ---- the page

SOURCES: tuple[Callable[[], Iterator[Held]], ...] = (
    table1,
    kernels,
    estimates,
    linearisation,
    pages,
    ladder,
    smaller,
    estimators,
    elsewhere,
)


@cache
def held() -> tuple[Held, ...]:
    """Every sentence that is held to a record."""
    return tuple(one for source in SOURCES for one in source())


def flat(document: str) -> str:
    """A document on one line, its words one space apart."""
    return " ".join((ROOT / document).read_text(encoding="utf-8").split())


def render() -> str:
    """The page."""
    rows = [
        f"| {document} | {one.sentence.replace('|', chr(92) + '|')} | {one.record} | {one.test} |"
        for one in held()
        for document in one.documents
    ]
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    """Take claims from the folder that is named, if one is; write what is made of records, and the page."""
    if len(sys.argv) > 1:
        take_claims(Path(sys.argv[1]))
    for document in made_texts():
        (ROOT / document).write_text(with_made(document), encoding="utf-8")
    save(shrink_figure(), ROOT / "docs/figures/shrink.png")
    climbs = enwik8.read_climbs()
    save(enwik8.draw(climbs.regimes, enwik8.tables_of(climbs)["bits"]), ROOT / "docs/figures/ladder.png")
    TARGET.write_text(render(), encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
