"""Request-log formats, one file each."""
