"""Where sweep points are computed; one file per executor, found by name."""
