"""The only code that waits: Kafka, Faust, clocks and signals, around operators that do not."""
