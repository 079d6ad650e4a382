"""Floor 6: from results to words, figures and self-contained HTML pages."""
