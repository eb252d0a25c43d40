"""The shapes of what the API is asked and answers: by these it validates, and describes itself."""
