"""Tests of Sluice itself; what AWS promises is in contract_tests."""
