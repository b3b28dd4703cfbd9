"""The paper's experiments on real data, a folder for each. `scripts/paper` runs them and writes docs/paper.md."""
