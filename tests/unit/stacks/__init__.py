"""Tests of `sluice.stacks`, and of the stage that composes them."""
