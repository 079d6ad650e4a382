"""The round-trace format: what a decoder did, round by round."""
