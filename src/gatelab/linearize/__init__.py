"""Linearisation: act(w.x) = Phi(w) . Psi(x), with the best that is possible beside it."""
