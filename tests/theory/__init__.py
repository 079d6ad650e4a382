"""Tests against closed results: queueing theory, closed forms."""
