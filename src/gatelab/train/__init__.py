"""Training of models, and the generalisation gap."""
