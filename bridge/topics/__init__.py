"""What lies in Kafka, beside the loop: names, which exist, their extents, publishing, reading dead letters back."""
