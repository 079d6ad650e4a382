"""simspec: simulate and model language-model serving with speculative decoding."""

__version__ = "0.1.0"
