"""Alarms and problems: noticed, and sent to webhooks until they are taken."""
