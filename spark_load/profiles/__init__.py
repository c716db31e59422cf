"""Load profiles: YAML files, their fields and constraints, what a run will take and cost."""
