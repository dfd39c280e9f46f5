"""The paper on linearisation: a file a table or section, and what they share."""
