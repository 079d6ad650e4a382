"""Which sequences take part in the next engine step; one policy per file."""
