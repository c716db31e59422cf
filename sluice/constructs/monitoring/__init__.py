"""Monitoring for operators: metrics, alarms and the dashboard."""
