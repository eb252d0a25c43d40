"""What people and programs ask of the desk."""
