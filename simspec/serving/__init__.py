"""The serving simulation: engine steps on a SimPy clock, policies, records, metrics."""
