"""The table of payments, and that of the marks."""

from typing import ClassVar

from django.db import migrations, models

from bridge.records.settled import CREATE_TABLE, TABLE


class Migration(migrations.Migration):
    operations: ClassVar = [
        migrations.CreateModel(
            "Payment", [("id", models.BigAutoField(primary_key=True)), ("order", models.IntegerField())]
        ),
        migrations.RunSQL(CREATE_TABLE, f"DROP TABLE {TABLE}"),
    ]
