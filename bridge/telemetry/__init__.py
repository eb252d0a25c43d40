"""OpenTelemetry: the spans of a delivery, and metrics by OTLP. Its packages are imported only if they are used."""
