"""Length distributions, one file each."""
