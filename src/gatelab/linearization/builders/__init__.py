"""The methods of `linearize`; `gatelab.linearization.registry` names them."""
