package tidegate.bench;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Generated numbers, counted per key. */
public final class KeyedCount {
    private KeyedCount() {}

    public static void main(String[] arguments) throws Exception {
        Settings settings = new Settings(arguments);
        long keys = settings.number("keys");
        StreamExecutionEnvironment environment = settings.environment();
        Numbers<Long> numbers =
                new Numbers<>(
                        settings.number("records"),
                        settings.parallelism(),
                        number -> Keys.key(number, keys));
        environment
                .fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .uid("numbers")
                .keyBy(new Keys.Itself<>(), Types.LONG)
                .process(new CountPerKey<>(settings.recordsPerSubtask()), Types.LONG)
                .name("count")
                .uid("count")
                .sinkTo(new DiscardingSink<>());
        environment.executeAsync("keyed-count");
    }
}
