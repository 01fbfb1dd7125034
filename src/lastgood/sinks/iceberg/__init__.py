"""An Iceberg table as a sink; evidence only."""
