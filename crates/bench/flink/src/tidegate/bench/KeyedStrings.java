package tidegate.bench;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Generated strings of mixed length, counted per key. */
public final class KeyedStrings {
    private KeyedStrings() {}

    public static void main(String[] arguments) throws Exception {
        Settings settings = new Settings(arguments);
        StreamExecutionEnvironment environment = settings.environment();
        Numbers<String> texts =
                new Numbers<>(
                        settings.number("records"),
                        settings.parallelism(),
                        new Texts(settings.number("keys")));
        environment
                .fromSource(texts, WatermarkStrategy.noWatermarks(), "texts", Types.STRING)
                .keyBy(new Keys.Itself<>(), Types.STRING)
                .process(new CountPerKey<>(settings.recordsPerSubtask()), Types.LONG)
                .name("count")
                .sinkTo(new DiscardingSink<>());
        environment.executeAsync("keyed-strings");
    }
}
