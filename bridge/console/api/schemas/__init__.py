"""The shapes of requests and answers of the API: it validates by them and describes itself by them."""
