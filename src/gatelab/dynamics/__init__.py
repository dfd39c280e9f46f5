"""Gradient descent in closed form, and two-layer networks trained many at a time."""
