"""Tests of the serving simulation."""
