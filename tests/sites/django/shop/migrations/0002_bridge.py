"""The tables of the marks and of the messages that handlers send, as docs/tutorials/existing-celery-app.md has them."""

from typing import ClassVar

from django.db import migrations

from bridge.formats.user_database import CREATE_OUTBOX_TABLE, CREATE_TABLE, OUTBOX_TABLE, TABLE


class Migration(migrations.Migration):
    dependencies: ClassVar = [("shop", "0001_initial")]
    operations: ClassVar = [
        migrations.RunSQL(CREATE_TABLE, f"DROP TABLE {TABLE}"),
        migrations.RunSQL(CREATE_OUTBOX_TABLE, f"DROP TABLE {OUTBOX_TABLE}"),
    ]
