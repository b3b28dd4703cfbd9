"""Replay of policies that learn: Algorithm 1 of the paper and its kin."""
