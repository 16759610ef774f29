import com.fasterxml.jackson.annotation.JsonProperty;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Orders and revenue of each segment; an order that changes is subtracted where it was. */
final class RevenueBySegment {
    record Order(
            @JsonProperty("segment") String segment,
            @JsonProperty("amount_cents") long amountCents) {}

    record Row(
            @JsonProperty("orders") long orders,
            @JsonProperty("revenue_cents") long revenueCents) {}

    private RevenueBySegment() {}

    static void apply(StreamsBuilder builder, String orders, String sink) {
        Versions.of(builder, orders, Order.class)
            .groupBy(
                (key, order) -> KeyValue.pair(order.segment(), order),
                Grouped.with(Serdes.String(), Json.of(Order.class)))
            .aggregate(
                () -> new Row(0, 0),
                (segment, order, row) ->
                    new Row(row.orders() + 1, row.revenueCents() + order.amountCents()),
                (segment, order, row) ->
                    new Row(row.orders() - 1, row.revenueCents() - order.amountCents()),
                store())
            .toStream()
            .to(sink, Produced.with(Serdes.String(), Json.of(Row.class)));
    }

    private static Materialized<String, Row, KeyValueStore<Bytes, byte[]>> store() {
        Materialized<String, Row, KeyValueStore<Bytes, byte[]>> store =
            Materialized.with(Serdes.String(), Json.of(Row.class));
        return Race.cacheIsTurnedOver() ? store.withCachingDisabled() : store;
    }
}
