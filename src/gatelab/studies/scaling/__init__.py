"""The paper on scaling: a file a figure or table, and what they share."""
