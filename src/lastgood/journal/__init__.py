"""What lies beside a checkpoint: how far each recovery has come, incidents, leases, attempts and ids of topics."""
