"""What operators see and hear: metrics, alarms and the dashboard."""
