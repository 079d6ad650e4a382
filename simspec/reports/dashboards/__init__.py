"""One page a file, each a single self-contained HTML document."""
