"""What the paper on condition numbers shows. Its copy has neither captions nor formulas: few numbers are left of it."""

from __future__ import annotations

from collections.abc import Iterator

from gatelab.studies.definition import Item

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
LARGE_WIDTH = "no number is printed: it is said for large m, and its formula is lost and derived again"
STATEMENT = "a statement, without a number"
THEOREM_LOST = "the theorem's formulas are lost in the copy; restored from its proof"
LOST = "which model and data the panel shows is not known"
APPENDIX = (
    "captions are lost: which model, data and units the panel shows is our reading. The text names Mixer, ViT and "
    "GPT-2, Tiny ImageNet, CIFAR-10 and FineWeb-Edu, in this order, and plain SGD for images"
)
NO_TINY_IMAGENET = "nothing was trained on Tiny ImageNet"
NO_PAIRS = "GPT-2 was trained with SiLU and SwiGLU alone, which figure 7 (b) shows; these are most likely other pairs"
# The settings of the record that stand for the panels of figure 7, and all that the record has.
PANELS = {"Mixer on CIFAR-10, SGD": "(a)", "GPT-2 on FineWeb-Edu, AdamW": "(b)", "ViT on CIFAR-10, SGD": "(c)"}
# Appendix D, as we read it: a figure for each model and data set of images, a panel for each pair of units; last text.
PAIR_FIGURES = {
    "Mixer on Tiny ImageNet, SGD": "figure 8",
    "Mixer on CIFAR-10, SGD": "figure 9",
    "ViT on Tiny ImageNet, SGD": "figure 10",
    "ViT on CIFAR-10, SGD": "figure 11",
}
PAIR_PANELS = {
    (setting, plain, gated): (figure, f"({letter}) {setting}, {plain} and {gated}")
    for setting, figure in PAIR_FIGURES.items()
    for letter, (plain, gated) in zip("abc", PAIRS, strict=True)
}
RECORDED = (*PANELS, "Mixer on CIFAR-10, AdamW", "ViT on CIFAR-10, AdamW")


def _spectra() -> Iterator[Item]:
    for _, gated in PAIRS:
        for what in ("largest eigenvalue", "smallest eigenvalue", "condition number"):
            yield Item("ntk", "figure 1", f"{gated}, {what}", why=CAPTION)
    for unit in PAIRS[0]:
        for row in (unit, f"{unit}, n in proportion"):
            yield Item("ntk", "figure 2", row, why=f"{CAPTION}, and so are the formulas of its estimates")
        yield Item("ntk", "prop. B.1", unit, why="the formula is lost; restored by expanding the kernel")
        for proposition in ("prop. B.6", "prop. B.9"):
            yield Item("ntk", proposition, unit, why="the formula is lost; restored from its proof")
    for shape in ("0.25", "0.5"):
        yield Item("ntk", "lemma B.8", f"2n/d² = {shape}", why="no number is printed; the formula is lost and restored")
    for panel in ("(a) ViT", "(b) GPT-2"):
        for _, gated in PAIRS:
            for start in ("LeCun weights", "weights of deviation 0.02"):
                yield Item("ntk", "figure 3", f"{panel}, {gated}, {start}", why=CAPTION)


def _premise() -> Iterator[Item]:
    lost = "the formula is lost; restored from the works that it is taken from"
    for what in ("κ", "log(1/ε)"):
        for target in ("random", "smooth"):
            yield Item("ntk", "section 2.2", f"power of {what}, {target} targets", "1", lost)
    yield Item("ntk", "section 2.2", "κ is the key indicator", "key indicator")
    yield Item("ntk", "section 2.2", "smaller κ, faster training", why=STATEMENT)


def _theorem() -> Iterator[Item]:
    for words, units in THEOREM.items():
        for unit, exponents in units.items():
            for what, printed in zip(("λ_max", "λ_min", "κ"), exponents, strict=True):
                yield Item("ntk", "theorem 3.1", f"{what} of {unit}, {words}", printed, THEOREM_LOST)
    yield Item("ntk", "theorem 3.1", "constants of λ_max", "1, 1", THEOREM_LOST)
    for line in TABLE1.strip().splitlines():
        matrix, *printed = (part.strip() for part in line.split(" | "))
        for word, cell in zip(("largest", "smallest"), printed, strict=True):
            yield Item("ntk", "table 1", f"{matrix}, {word}", cell, "lost in the copy; restored from the proof")


def _angles_and_dynamics() -> Iterator[Item]:
    for data in ("Gaussian", "digits"):
        yield Item("ntk", "figure 4", data, why=CAPTION)
    for equation in ("eq. 5", "eq. 8"):
        for row in ("m = 1 d", "m = 10 d", "against d/m"):
            yield Item("ntk", equation, row, why=LARGE_WIDTH)
    for row in ("the ellipses", "(a), (b) and (c)", "(d)"):
        yield Item("ntk", "figure 5", row, why=CAPTION)
    for data in ("Gaussian", "MNIST"):
        for plain, gated in PAIRS:
            yield Item("ntk", "figure 6", f"(a) to (d): {plain} and {gated}, {data}", why=CAPTION)
        for how in ("how long", "how far"):
            yield Item("ntk", "section 4.2", f"learning rate, {data}, {how}", why=STATEMENT)
    yield Item(
        "ntk",
        "corollary 4.2",
        "late stage",
        why="no number is printed; the formula is lost and restored from its proof",
    )
    yield Item("ntk", "corollary 4.2", "early stage", why="its reason names who leads at first")
    why = "corollary 4.2 in the appendix, with its proof; the bounds on n and d are lost"
    yield Item("ntk", "corollary C.3", "early stage over n and d", why=why)
    for unit in PAIRS[0]:
        yield Item("ntk", "prop. 4.1", unit, "proposition 4.1", "the formula is lost and restored from its proof")


def _gap() -> Iterator[Item]:
    for setting in RECORDED:
        if setting in PANELS:
            yield Item("ntk", "figure 7", f"{PANELS[setting]} {setting}", why=f"the p of its test is lost, and {LOST}")
        else:
            yield Item("ntk", "section 5", f"joint distribution, {setting}", why=STATEMENT)
        yield Item("ntk", "section 5", f"gap at equal loss, {setting}", why=STATEMENT)
        for loss in ("training", "test"):
            yield Item("ntk", "section 1", f"{loss} loss, {setting}", why=STATEMENT)
    for setting in ("Mixer on CIFAR-10", "ViT on CIFAR-10"):
        yield Item("ntk", "section 5", f"SGD and AdamW, {setting}", why=STATEMENT)
    for figure, panel in PAIR_PANELS.values():
        missing = NO_TINY_IMAGENET if "Tiny ImageNet" in panel else ""
        yield Item("ntk", figure, panel, why=APPENDIX, missing=missing)
    for letter in "ab":
        yield Item("ntk", "figure 12", f"({letter}) GPT-2 on FineWeb-Edu, AdamW", why=APPENDIX, missing=NO_PAIRS)


ITEMS = (*_premise(), *_spectra(), *_theorem(), *_angles_and_dynamics(), *_gap())
