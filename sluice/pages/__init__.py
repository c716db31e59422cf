"""What every page that Sluice draws is made of: base, style, charts as inline SVG, and numbers with their units."""
