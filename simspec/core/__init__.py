"""Floor 0: what every other package may use. Knows nothing of GPUs or tokens."""
