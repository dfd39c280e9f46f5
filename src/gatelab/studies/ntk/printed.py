"""What the paper on condition numbers shows. Its copy has neither captions nor formulas: few numbers are left of it."""

from __future__ import annotations

from collections.abc import Iterator

from gatelab.studies.definition import Item
from gatelab.studies.titled import TitledItem

PAIRS = (("ReLU", "ReGLU"), ("GELU", "GEGLU"), ("SiLU", "SwiGLU"))
# Table 1: the matrices of the proof. Its cells are lost and restored from the proof, in formulas of n and d.
TABLE1 = """
Wishart matrix G/d         | (1 + √(n/d))² = | (1 - √(n/d))² for n < d, else 0
square of G/d by elements  | 1 + n/d =       | 1
matrix of rank one r r^T/d | n =             | 0
"""
# Theorem 3.1: exponents of λ_max, λ_min and κ along each way through the sizes.
THEOREM = {
    "as n grows at fixed d": {"ReLU": ("1", "0", "1"), "ReGLU": ("1", "0", "1")},
    "as d grows at fixed n": {"ReLU": ("0", "0", "0"), "ReGLU": ("-1", "0", "-1")},
    "as n and d grow in proportion": {"ReLU": ("1", "0", "1"), "ReGLU": ("0", "0", "0")},
}
CAPTION = "no number is printed; caption and sizes are lost"
LOST = "which model and data the panel shows is not known"
APPENDIX = (
    "captions are lost: which model, data and units the panel shows is not known. The text names MLP-Mixer, ViT and "
    "GPT-2 on Tiny ImageNet, CIFAR-10 and FineWeb-Edu, in this order; the record has Mixer and ViT on CIFAR-10 and "
    "GPT-2 on FineWeb-Edu, and none of Tiny ImageNet"
)
RECORDED = (
    ("(a)", "ReLU", "ReGLU", "Mixer on CIFAR-10, SGD"),
    ("(b)", "SiLU", "SwiGLU", "GPT-2 on FineWeb-Edu, AdamW"),
    ("(c)", "ReLU", "ReGLU", "ViT on CIFAR-10, SGD"),
    ("", "ReLU", "ReGLU", "Mixer on CIFAR-10, AdamW"),
    ("", "ReLU", "ReGLU", "ViT on CIFAR-10, AdamW"),
)


def _item(place: str, row: str, printed: str, study: str, claim: str, why: str = "") -> Item:
    return TitledItem("ntk", place, row, printed, why, study=f"ntk/{study}", title=claim)


def _spectra() -> Iterator[Item]:
    for plain, gated in PAIRS:
        for what in ("largest eigenvalue", "smallest eigenvalue", "condition number"):
            yield _item("figure 1", f"{gated}, {what}", "", "fig1", f"{what}, {gated} against {plain}", CAPTION)
    for unit in PAIRS[0]:
        measured = f"the paper's estimate of κ over the measured, {unit}"
        yield _item("figure 2", unit, "", "fig2", f"{measured}, across d", CAPTION)
        yield _item("figure 2", f"{unit}, n in proportion", "", "fig2", f"{measured}, n in proportion to d", CAPTION)
        taylor = f"the paper's estimate of κ over that of its Taylor form, {unit}"
        yield _item("prop. B.1", unit, "", "fig2", taylor, "the formula is lost; restored by expanding the kernel")
        for what, proposition in (("λ_max", "B.6"), ("λ_min", "B.9")):
            claim = f"the paper's estimate of {what} over the measured, {unit} (Prop. {proposition})"
            yield _item(
                f"prop. {proposition}", unit, "", "thm31", claim, "the formula is lost; restored from its proof"
            )
    for letter, model in (("a", "ViT"), ("b", "GPT-2")):
        for plain, gated in PAIRS:
            for start in ("LeCun weights", "weights of deviation 0.02"):
                claim = f"condition number of {model} with {gated} against {plain}, {start}"
                yield _item("figure 3", f"({letter}) {model}, {gated}", "", "fig3", claim, CAPTION)


def _theorem() -> Iterator[Item]:
    for words, units in THEOREM.items():
        for unit, exponents in units.items():
            for what, printed in zip(("λ_max", "λ_min", "κ"), exponents, strict=True):
                claim = f"exponent of {what} of {unit} {words}"
                yield _item("theorem 3.1", f"{what} of {unit}, {words}", printed, "thm31", claim)
    leading = "λ_max/m over n/(2π) (ReLU) and n/(4d) (ReGLU), n and d in proportion"
    yield _item("theorem 3.1", "constants of λ_max", "1, 1", "thm31", leading)
    for line in TABLE1.strip().splitlines():
        matrix, *printed = (part.strip() for part in line.split(" | "))
        for word, cell in zip(("largest", "smallest"), printed, strict=True):
            claim = f"{word} eigenvalue of the {matrix} (table 1)"
            yield _item(
                "table 1", f"{matrix}, {word}", cell, "thm31", claim, "lost in the copy; restored from the proof"
            )


def _angles_and_dynamics() -> Iterator[Item]:
    for data in ("Gaussian", "digits"):
        yield _item("figure 4", data, "", "fig4", f"mean |off-diagonal| / diagonal, {data}", CAPTION)
    for ratio in ("1", "10"):
        kernels = f"the ReGLU kernel as that of ReLU times the Gram matrix (eq. 5) at m = {ratio} d"
        yield _item("eq. 5", f"m = {ratio} d", "", "fig4", kernels)
        yield _item("eq. 8", f"m = {ratio} d", "", "fig4", f"cos φ~ = cos φ cos θ (eq. 8) at m = {ratio} d")
    ends = "largest and smallest eigenvalue of the two-sample kernel"
    yield _item("figure 5", "the ellipses", "", "fig5", ends, CAPTION)
    yield _item("figure 5", "(a), (b) and (c)", "", "fig5", "who is ahead in panels (a), (b) and in (c)", CAPTION)
    yield _item("figure 5", "(d)", "", "fig5", "the path of panel (d)", CAPTION)
    for data in ("Gaussian", "MNIST"):
        for plain, gated in PAIRS:
            claim = f"crossing of {plain} and {gated}, {data}"
            yield _item("figure 6", f"(a) to (d): {plain} and {gated}, {data}", "", "fig6", claim, CAPTION)
        for how, verb in (("how long", "stays"), ("how far", "gets")):
            claim = f"{how} ReLU {verb} ahead, by learning rate, {data}"
            yield _item("section 4.2", f"learning rate, {data}", "", "fig6", claim)
    late = "the step from which the smallest eigenvalues alone put ReGLU ahead (appendix C.2)"
    yield _item("corollary 4.2", "late stage", "", "fig6", late)
    early = "crossing of ReLU and ReGLU, Gaussian"
    yield _item("corollary 4.2", "early stage", "", "fig6", early, "its reason names who leads at first")
    for unit in PAIRS[0]:
        yield _item("prop. 4.1", unit, "proposition 4.1", "fig6", f"expected loss of {unit} at every step")


def _gap() -> Iterator[Item]:
    for panel, plain, gated, where in RECORDED:
        joint = f"(loss, gap) of {plain} and {gated}, {where}"
        if panel:
            yield _item("figure 7", f"{panel} {where}", "", "fig7", joint, f"the p of its test is lost, and {LOST}")
        else:
            yield _item("section 5", f"joint distribution, {where}", "", "fig7", joint)
        matched = f"gap of {gated} less that of {plain} at equal loss, {where}"
        yield _item("section 5", f"gap at equal loss, {where}", "", "fig7", matched)
        for loss in ("training", "test"):
            claim = f"{loss} loss of {gated} less that of {plain} at the last step, {where}"
            yield _item("section 1", f"{loss} loss, {where}", "", "fig7", claim)
    for model in ("Mixer", "ViT"):
        optimiser = f"AdamW less SGD at equal loss, {model} on CIFAR-10"
        yield _item("section 5", f"SGD and AdamW, {model}", "", "fig7", optimiser)
    mixer, gpt2, vit, *_ = RECORDED
    panels = ((8, "abc", mixer), (9, "abc", mixer), (10, "abc", vit), (11, "abc", vit), (12, "ab", gpt2))
    for figure, letters, (_, plain, gated, where) in panels:
        for letter in letters:
            claim = f"(loss, gap) of {plain} and {gated}, {where}"
            yield _item(f"figure {figure}", f"({letter})", "", "appendix-d", claim, APPENDIX)


ITEMS = (*_spectra(), *_theorem(), *_angles_and_dynamics(), *_gap())
