"""Tests with the real LocalStack, cdk and Spark."""
