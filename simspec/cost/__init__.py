"""How long the work of a step takes: operators, collectives, roofline, passes, energy."""
