"""Arrival processes, one file each."""
