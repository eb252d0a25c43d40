"""The dead-letter store: dead letters recorded, understood, edited and replayed."""
