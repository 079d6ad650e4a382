"""Model architectures, number formats and the counts made from them."""
