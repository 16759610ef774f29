#!/usr/bin/env bash
# Runs a broker with the properties in a file.
export KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xmx1g -Xms256m}
export KAFKA_LOG4J_OPTS=${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=file:/opt/kafka/config/log4j2.yaml}
exec "$(dirname "${BASH_SOURCE[0]}")/kafka-run-class.sh" kafka.Kafka "$@"
