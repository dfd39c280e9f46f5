"""Networks that hold feed-forward blocks: a unit transplanted into a given model."""
