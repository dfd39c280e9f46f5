"""Blocks of pretrained models and estimators on tables: studies beyond the papers."""
