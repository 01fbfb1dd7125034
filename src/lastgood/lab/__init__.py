"""Real services on this machine, for demo, drills and tests: Kafka, Spark, and what they run on."""
