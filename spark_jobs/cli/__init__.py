"""`headrace spark`: run a job, or look into its checkpoint."""
