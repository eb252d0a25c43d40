"""Letters copied to other topics and other Kafkas."""
