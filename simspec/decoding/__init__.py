"""Decoding methods, one file each, and what their drafts are accepted."""
