"""Training: configuration, losses, optimisation and the one loop."""
