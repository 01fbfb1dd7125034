"""What a recorder has seen of running queries: its records as values, and the files that hold them."""
