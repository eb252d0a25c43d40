"""The pages of the console, a file for each subject, and what several pages show."""
