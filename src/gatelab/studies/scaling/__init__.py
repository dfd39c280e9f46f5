"""The paper on scaling: one file per figure or table, and shared code."""
