"""The farm: runs of fresh seeds, each with its own pipeline, brokers, network and strikes."""
