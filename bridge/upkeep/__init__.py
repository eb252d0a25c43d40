"""What a running bridge does now and then, a job a file."""
