"""One file per kind of measurement table, recognised by its columns."""
