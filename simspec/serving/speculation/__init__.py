"""How much is drafted while the load changes; one policy per file."""
