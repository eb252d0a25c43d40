"""The decision on a failed delivery, made from plain values, and the decisions of people for the group."""
