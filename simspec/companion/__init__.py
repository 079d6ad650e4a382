"""What runs on a device through torch: measuring it. Needs ``simspec[companion]``."""
