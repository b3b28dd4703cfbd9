"""The paper's experiments on real data: `scripts/paper` runs them and writes docs/paper.md."""
