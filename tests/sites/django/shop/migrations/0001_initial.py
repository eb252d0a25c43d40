"""The table of payments."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    operations: ClassVar = [
        migrations.CreateModel(
            "Payment", [("id", models.BigAutoField(primary_key=True)), ("order", models.IntegerField())]
        ),
    ]
