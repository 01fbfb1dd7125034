"""From what is known of a query and what is asked for to a plan: steps, guarantee and price. Pure."""
