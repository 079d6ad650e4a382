"""The tests of simspec, in the same tree as the package."""
