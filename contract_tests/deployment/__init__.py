"""Promises of a deployed environment: names, policies, alarms and subscriptions as declared."""
