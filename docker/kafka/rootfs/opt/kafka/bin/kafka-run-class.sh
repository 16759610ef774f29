#!/usr/bin/env bash
# Runs one of Kafka's classes with what KAFKA_HEAP_OPTS and KAFKA_OPTS say.
logging=${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=file:/etc/kafka/docker/tools-log4j2.yaml}
# Each of these may hold several words.
# shellcheck disable=SC2086
exec java ${KAFKA_HEAP_OPTS:--Xmx256m} ${KAFKA_JVM_PERFORMANCE_OPTS:-} $logging ${KAFKA_OPTS:-} \
  -cp '/opt/kafka/libs/*' "$@"
