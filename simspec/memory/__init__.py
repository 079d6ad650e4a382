"""What fits: weights, activations, the KV pool and its blocks."""
