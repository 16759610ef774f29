import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Each order with the price that its product had at the order's own time, as JSON: of raw orders and
 * raw prices each once by key and id, which is the whole way in one topology, or of cleaned ones.
 */
final class PricedOrders {
    record Order(
            @JsonProperty("order_id") String orderId, @JsonProperty("quantity") long quantity) {}

    record Price(@JsonProperty("price_cents") long priceCents) {}

    record Row(
            @JsonProperty("product") String product,
            @JsonProperty("order_id") String orderId,
            @JsonProperty("quantity") long quantity,
            @JsonProperty("price_cents") long priceCents,
            @JsonProperty("total_cents") long totalCents) {}

    private static final ObjectReader ORDERS = Json.MAPPER.readerFor(Order.class);
    private static final ObjectReader PRICES = Json.MAPPER.readerFor(Price.class);
    private static final ObjectWriter ROWS = Json.MAPPER.writerFor(Row.class);

    private PricedOrders() {}

    static void ofRaw(
            StreamsBuilder builder, KStream<byte[], byte[]> orders, String sink, String prices) {
        long intervalMs = Race.millis("INTERVAL_MS");
        KStream<byte[], byte[]> changes =
            builder.stream(prices, Consumed.with(Race.BYTES, Race.BYTES));
        join(
            Once.of(builder, orders, "orders", intervalMs),
            Once.of(builder, changes, "prices", intervalMs).toTable(versions()),
            sink);
    }

    static void ofCleaned(
            StreamsBuilder builder, KStream<byte[], byte[]> orders, String sink, String prices) {
        join(
            orders,
            builder.table(prices, Consumed.with(Race.BYTES, Race.BYTES), versions()),
            sink);
    }

    private static Materialized<byte[], byte[], KeyValueStore<Bytes, byte[]>> versions() {
        return Materialized.<byte[], byte[]>as(Stores.persistentVersionedKeyValueStore(
                "versions", Duration.ofMillis(Race.millis("RETENTION_MS"))))
            .withKeySerde(Race.BYTES)
            .withValueSerde(Race.BYTES);
    }

    private static void join(
            KStream<byte[], byte[]> orders, KTable<byte[], byte[]> versions, String sink) {
        Duration grace = Duration.ofMillis(Race.millis("GRACE_MS"));
        orders
            .join(
                versions,
                PricedOrders::priced,
                Joined.<byte[], byte[], byte[]>with(Race.BYTES, Race.BYTES, Race.BYTES)
                    .withGracePeriod(grace))
            .to(sink, Produced.with(Race.BYTES, Race.BYTES));
    }

    private static byte[] priced(byte[] key, byte[] order, byte[] price) {
        try {
            Order ordered = ORDERS.readValue(order);
            Price paid = PRICES.readValue(price);
            return ROWS.writeValueAsBytes(new Row(
                new String(key, StandardCharsets.UTF_8),
                ordered.orderId(),
                ordered.quantity(),
                paid.priceCents(),
                ordered.quantity() * paid.priceCents()));
        } catch (IOException wrong) {
            throw new UncheckedIOException(wrong);
        }
    }
}
