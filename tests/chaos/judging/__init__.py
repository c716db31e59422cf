"""What a run left behind, held against what was committed."""
