"""Why a query died: what its driver threw or wrote into its log, and the class of that. Pure."""
