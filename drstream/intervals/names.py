"""The names of the methods, for help texts that must not load SciPy or NumPy."""

NAMES = ("normal", "t", "bootstrap", "cluster", "bernstein", "freedman", "anytime", "likelihood", "gamma")
