"""Figures, as ratios measured side by side in one run: see README.md for what was seen."""
