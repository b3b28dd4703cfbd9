"""Evaluation of fixed policies: one pass over the log for all policies and estimators."""
