"""Values mended before they go back: edits, patches, and whether handlers take them."""
