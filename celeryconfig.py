"""The one file that you edit: Celery's own settings, and what the bridge does with each topic.

Secrets and addresses come from the environment; see docs/reference/settings.md for every setting.
"""

#: The modules that hold your handlers (or name them in the environment variable HANDLERS).
imports = ("examples.orders.handlers",)

#: How each topic is committed and ordered; what is not here is committed at hand-off, in no order.
kafka_topics = {}
