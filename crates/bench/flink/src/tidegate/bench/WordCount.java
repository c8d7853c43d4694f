package tidegate.bench;

import java.util.Arrays;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The words of text files, counted. {@code --input} names them, separated by commas, and {@code
 * --records} is the number of words in all of them.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        Settings settings = new Settings(arguments);
        StreamExecutionEnvironment environment = settings.environment();
        FileSource<String> files =
                FileSource.forRecordStreamFormat(new TextLineInputFormat(), paths(settings))
                        .build();
        environment
                .fromSource(files, WatermarkStrategy.noWatermarks(), "lines")
                .flatMap(new Words(), Types.STRING)
                .keyBy(new Keys.Itself<>(), Types.STRING)
                .process(new CountPerKey<>(settings.recordsPerSubtask()), Types.LONG)
                .name("count")
                .sinkTo(new DiscardingSink<>());
        environment.executeAsync("wordcount");
    }

    private static Path[] paths(Settings settings) {
        return Arrays.stream(settings.text("input").split(",")).map(Path::new).toArray(Path[]::new);
    }

    private static final class Words implements FlatMapFunction<String, String> {
        private static final long serialVersionUID = 1;

        @Override
        public void flatMap(String line, Collector<String> output) {
            int start = 0;
            for (int space = line.indexOf(' '); space >= 0; space = line.indexOf(' ', start)) {
                if (space > start) {
                    output.collect(line.substring(start, space));
                }
                start = space + 1;
            }
            if (start < line.length()) {
                output.collect(line.substring(start));
            }
        }
    }
}
