"""Measurements and simulations behind decisions. Nothing here is asserted on time."""
