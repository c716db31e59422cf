"""What is harmed: producers, handlers, their tables and database, and the processes."""
