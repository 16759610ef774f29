import com.fasterxml.jackson.annotation.JsonProperty;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

/** Each customer with the subscription of the same key, or with none. */
final class CustomersSubscriptions {
    record Customer(@JsonProperty("name") String name) {}

    record Subscription(@JsonProperty("plan") String plan) {}

    record Row(@JsonProperty("name") String name, @JsonProperty("plan") String plan) {}

    private CustomersSubscriptions() {}

    static void apply(StreamsBuilder builder, String customers, String subscriptions, String sink) {
        Versions.of(builder, customers, Customer.class)
            .leftJoin(
                Versions.of(builder, subscriptions, Subscription.class),
                (customer, subscription) -> new Row(
                    customer.name(), subscription == null ? null : subscription.plan()))
            .toStream()
            .to(sink, Produced.with(Serdes.String(), Json.of(Row.class)));
    }
}
