"""How often a run is called slower: where nothing changed, and where something did."""
