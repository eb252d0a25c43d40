"""The JSON API of the console; one route table answers requests and describes the API."""
