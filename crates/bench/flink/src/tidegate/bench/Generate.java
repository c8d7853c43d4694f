package tidegate.bench;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Generated numbers, thrown away: what the generator alone costs. */
public final class Generate {
    private Generate() {}

    public static void main(String[] arguments) throws Exception {
        Settings settings = new Settings(arguments);
        StreamExecutionEnvironment environment = settings.environment();
        Numbers<Long> numbers =
                new Numbers<>(
                        settings.number("records"), settings.parallelism(), number -> number);
        environment
                .fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .process(new Pass(settings.recordsPerSubtask()), Types.LONG)
                .sinkTo(new DiscardingSink<>());
        environment.executeAsync("source");
    }

    private static final class Pass extends ProcessFunction<Long, Long> {
        private static final long serialVersionUID = 1;

        private final long expectedRecords;
        private transient Meter meter;

        Pass(long expectedRecords) {
            this.expectedRecords = expectedRecords;
        }

        @Override
        public void open(OpenContext context) {
            meter = new Meter(expectedRecords);
        }

        @Override
        public void processElement(Long record, Context context, Collector<Long> output) {
            meter.count();
            output.collect(record);
        }

        @Override
        public void close() {
            if (meter != null) {
                meter.report(getRuntimeContext());
            }
        }
    }
}
