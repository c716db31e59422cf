"""Servers on loopback that answer instead of AWS, or stand between a client and LocalStack."""
