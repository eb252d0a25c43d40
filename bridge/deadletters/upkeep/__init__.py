"""What the desk does by itself: it cleans up, and sends back what is fixed."""
