"""Long experiments: whether what drstream says about itself is true. `scripts/study` runs them."""
