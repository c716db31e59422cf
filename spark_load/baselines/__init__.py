"""Compare runs of one profile on one kind of machine with earlier ones. It needs neither Spark nor AWS."""
