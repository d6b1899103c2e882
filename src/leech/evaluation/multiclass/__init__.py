"""Models of more than two states: what is measured of them, and how they are calibrated."""
