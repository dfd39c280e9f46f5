"""Which unit, in a language model: what the records of `gl.ladder` say. No paper has it."""
