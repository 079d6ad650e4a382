"""Floor 5b: grids of scenarios, computed once, kept, joined with their baselines."""
