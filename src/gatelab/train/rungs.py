"""The task of a ladder's runs under the name by which stores and records have always filed them."""

from gatelab.train.ladder_runs import train_run as train_rung

__all__ = ["train_rung"]
