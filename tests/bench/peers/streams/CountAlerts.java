import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Each final count of a window that is outside of the limits which its key had at that time. */
final class CountAlerts {
    record Limits(@JsonProperty("least") Long least, @JsonProperty("most") Long most) {}

    record Count(
            @JsonProperty("start") long startMs,
            @JsonProperty("end") long endMs,
            @JsonProperty("count") long count) {}

    record Row(
            @JsonProperty("key") String key,
            @JsonProperty("window_start_ms") long startMs,
            @JsonProperty("window_end_ms") long endMs,
            @JsonProperty("count") long count,
            @JsonProperty("least") Long least,
            @JsonProperty("most") Long most) {}

    private CountAlerts() {}

    static void apply(StreamsBuilder builder, String counts, String limits, String sink) {
        long windowMs = Race.millis("WINDOW_MS");
        Serde<Windowed<String>> windows =
            new WindowedSerdes.TimeWindowedSerde<>(Serdes.String(), windowMs);
        // The key is another one from here on, so Kafka Streams partitions the counts anew.
        builder.stream(counts, Consumed.with(windows, Serdes.Long()))
            .map((window, count) -> KeyValue.pair(
                window.key(), new Count(window.window().start(), window.window().end(), count)))
            .join(
                Versions.of(builder, limits, Limits.class),
                CountAlerts::row,
                Joined.with(Serdes.String(), Json.of(Count.class), Json.of(Limits.class))
                    .withGracePeriod(Duration.ofMillis(Race.millis("GRACE_MS"))))
            .filter((key, row) -> isOutside(row))
            .to(sink, Produced.with(Serdes.String(), Json.of(Row.class)));
    }

    private static Row row(String key, Count count, Limits limits) {
        return new Row(
            key, count.startMs(), count.endMs(), count.count(), limits.least(), limits.most());
    }

    private static boolean isOutside(Row row) {
        return (row.least() != null && row.count() < row.least())
            || (row.most() != null && row.count() > row.most());
    }
}
