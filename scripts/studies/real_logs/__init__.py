"""Real logs whose truth is known: what estimates, intervals and findings say about them."""
