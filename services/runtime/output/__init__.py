"""Where what leaves a task goes to, and the transaction that makes it count."""
