import com.fasterxml.jackson.annotation.JsonProperty;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

/** Each order with its customer, again whenever one of the two changes: a foreign-key join. */
final class OrdersCustomers {
    record Order(
            @JsonProperty("customer") String customer,
            @JsonProperty("amount_cents") long amountCents) {}

    record Customer(
            @JsonProperty("name") String name, @JsonProperty("segment") String segment) {}

    record Row(
            @JsonProperty("customer") String customer,
            @JsonProperty("amount_cents") long amountCents,
            @JsonProperty("name") String name,
            @JsonProperty("segment") String segment) {}

    private OrdersCustomers() {}

    static void apply(StreamsBuilder builder, String orders, String customers, String sink) {
        Versions.of(builder, orders, Order.class)
            .join(
                Versions.of(builder, customers, Customer.class),
                Order::customer,
                (order, customer) -> new Row(
                    order.customer(), order.amountCents(), customer.name(), customer.segment()))
            .toStream()
            .to(sink, Produced.with(Serdes.String(), Json.of(Row.class)));
    }
}
