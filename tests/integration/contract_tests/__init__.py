"""Tests of contract_tests."""
