"""The study of reliability: faults are injected, and what comes of them is counted."""
