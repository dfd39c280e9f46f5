"""The paper on linearization: a module per table or section, and the code that they share."""
