"""The schemas of requests and answers of the API: they validate requests and describe the API."""
