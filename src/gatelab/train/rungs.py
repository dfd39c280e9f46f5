"""The name under which stores and records refer to the task of a ladder's runs."""

from gatelab.train.ladder_runs import train_run as train_rung

__all__ = ["train_rung"]
