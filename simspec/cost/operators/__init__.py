"""One file per operator, found by its name; each says which kernels a place launches."""
