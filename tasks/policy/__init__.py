"""What becomes of a delivery whose handler failed, decided from plain values; and what people have decided for the
group.
"""
