"""The paper on condition numbers: a module per figure or theorem, and the code that they share."""
