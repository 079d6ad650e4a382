"""Acceptance models, one file each: confidence and acceptance as one joint process."""
