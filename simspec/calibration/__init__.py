"""Fit coefficients to measurements, with their uncertainty, and judge them on others."""
