"""Runs of one profile on one kind of machine, held against those before them. It needs neither Spark nor AWS."""
