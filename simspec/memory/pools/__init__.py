"""What engines mean by their memory knob: one file per rule."""
