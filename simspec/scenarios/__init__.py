"""Floor 5a: the composition root. YAML to objects to a result; the only place that wires."""
