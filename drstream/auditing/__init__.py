"""Audit of a log before any policy: one pass that gathers sums, and checks that turn them into findings."""
