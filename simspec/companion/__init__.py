"""What runs through torch: a decoder, and measuring a device. Needs ``simspec[companion]``."""
