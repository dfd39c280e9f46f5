"""Blocks of given models: a study of what no paper has."""
