"""Looks at a query and at what stands around it, and makes one value of all that is found."""
