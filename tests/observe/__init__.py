"""What a sidecar says about itself, over real HTTP where it says it there."""
