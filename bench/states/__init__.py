"""Benchmarks of states that last."""
