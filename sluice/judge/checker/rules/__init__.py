"""The rules, a module for each family of anomalies; each anomaly is one function."""
