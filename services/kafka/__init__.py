"""What we say to brokers and a schema registry, and what they answer: who we are, what is there."""
