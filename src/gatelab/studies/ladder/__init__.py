"""Units in a language model: studies of the records of `gl.ladder`, beyond the papers."""
