"""One file per collective algorithm, found by its name; the fastest one a link has wins."""
