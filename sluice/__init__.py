"""What all sides of Sluice agree on: pure values, standard library only."""
