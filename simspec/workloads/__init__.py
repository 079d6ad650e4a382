"""Requests: when they arrive and how long they are."""
