"""One loop per decoding method, named as in simspec/decoding."""
