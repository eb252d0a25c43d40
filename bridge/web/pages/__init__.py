"""What the console's pages show: a file a page."""
