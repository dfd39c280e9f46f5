"""Settings of the records on trained models, and the panels of the paper on condition numbers that they stand for."""

from __future__ import annotations

from gatelab.studies.inventory import read_items

# The settings of the record that stand for the panels of figure 7, and all that the record has.
PANELS = {
    setting: panel for panel, setting in (i.row.split(" ", 1) for i in read_items("ntk") if i.heading == "figure 7")
}
RECORDED = (*PANELS, "Mixer on CIFAR-10, AdamW", "ViT on CIFAR-10, AdamW")
# Appendix D, as we read it: a figure for each model and data set of images, a panel for each pair of units.
PAIR_PANELS = {
    (setting.split(" ", 1)[1], *units.split(" and ")): (item.heading, item.row)
    for item in read_items("ntk")
    if item.heading in ("figure 8", "figure 9", "figure 10", "figure 11")
    for setting, units in [item.row.rsplit(", ", 1)]
}
