"""One module per command; each has ``register(app)`` and imports its machinery inside."""
