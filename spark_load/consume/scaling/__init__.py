"""Real workers, as many as the scaling policy of their service asks for, in compressed time."""
