"""All parts of the study, in the order of the page."""

from __future__ import annotations

from scripts.reliability_study import signals
from scripts.reliability_study.record import Part

PARTS = {
    part.name: part
    for part in (
        Part(
            "signals",
            "Ctrl-C and SIGTERM",
            "A signal at any moment of a command, from its start to its end. It must end soon, with one line and exit "
            "code 130 or 143, and leave no half-written file and no process. Or it was complete already.",
            signals.run,
            cases=400,
            piece=8,
        ),
    )
}
