"""The knot solver with gates that stay where they start, equally spaced."""

from functools import partial

from gatelab.solve.solvers import knots

memory, solve = knots.memory, partial(knots.solve, gates="frozen")
