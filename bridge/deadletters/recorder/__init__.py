"""The recorder: dead-letter topics into the desk's database, and what is done beside that on a timetable."""
