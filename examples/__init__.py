"""Small services to copy from. Nothing of Sluice imports them."""
