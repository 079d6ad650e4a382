"""Floor 7: the command line. No modelling; turns words into calls and results into tables."""
