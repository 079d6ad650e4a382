"""Which replica of a fleet gets a request; one policy per file."""
