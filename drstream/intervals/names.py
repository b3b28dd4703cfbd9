"""The names of the methods, for help texts that must not load SciPy or NumPy."""

NAMES = (
    "tails",
    "normal",
    "bootstrap",
    "cluster",
    "bernstein",
    "freedman",
    "anytime",
    "likelihood",
    "gamma",
    "ls",
    "ix",
)
