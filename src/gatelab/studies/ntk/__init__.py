"""The paper on condition numbers: a file a figure or theorem, and what they share."""
