"""Where checkpoints, tables and files live: locations, reading, writing, and what each kind of storage needs beyond."""
