"""Training from scratch with the LayerSkip recipe, and of what drafts."""
