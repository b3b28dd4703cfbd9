"""How far estimates in float32 are from those in float64."""
