"""The decoder: weights, layers, cache, files."""
