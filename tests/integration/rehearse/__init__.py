"""Rehearsals of whole services: what was declared, its deployed policy and hours of traffic."""
