"""Parts of every page that Sluice draws: base, style, charts as inline SVG, and numbers with their units."""
