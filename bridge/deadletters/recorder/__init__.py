"""The recorder: dead-letter topics into the database, and the duties beside it."""
