"""Tests with real parts: LocalStack, cdk, Postgres, Spark. Their folders are those of the packages they test."""
