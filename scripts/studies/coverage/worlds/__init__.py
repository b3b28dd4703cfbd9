"""The simulated worlds. To add one, add an entry to the worlds of its group; to add a group, add its module here."""

from scripts.studies.coverage.world import World
from scripts.studies.coverage.worlds import (
    benign,
    candidates,
    learners,
    lifts,
    propensities,
    rankings,
    rare,
    revenue,
    users,
    weights,
    winners,
)

GROUPS: dict[str, dict[str, World]] = {
    "benign": benign.WORLDS,
    "weights": weights.WORLDS,
    "revenue": revenue.WORLDS,
    "rare": rare.WORLDS,
    "users": users.WORLDS,
    "winners": winners.WORLDS,
    "lifts": lifts.WORLDS,
    "learners": learners.WORLDS,
    "propensities": propensities.WORLDS,
    "rankings": rankings.WORLDS,
    "candidates": candidates.WORLDS,
}
WORLDS = {name: world for group in GROUPS.values() for name, world in group.items()}
