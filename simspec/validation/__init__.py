"""Predictions against measurements that nobody here made."""
