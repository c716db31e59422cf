"""Fargate tasks: workers, relays and automatic redrive, with their images, scaling and schema."""
