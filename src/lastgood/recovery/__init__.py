"""Bringing a query back: the mirror of its logs, backups of them, and what they were."""
