package tidegate.bench;

import java.util.HashMap;
import java.util.Map;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * What a run is told on its command line, as {@code --name value} pairs: the names that Tidegate's
 * side of the suite has, too.
 */
final class Settings {
    private final Map<String, String> values = new HashMap<>();

    Settings(String[] arguments) {
        if (arguments.length % 2 != 0) {
            throw new IllegalArgumentException("settings are pairs of --name and value");
        }
        for (int at = 0; at < arguments.length; at += 2) {
            if (!arguments[at].startsWith("--")) {
                throw new IllegalArgumentException("no setting: `" + arguments[at] + "`");
            }
            values.put(arguments[at].substring(2), arguments[at + 1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("`--" + name + "` is missing");
        }
        return value;
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    int parallelism() {
        return (int) number("parallelism");
    }

    /** Records that one subtask counts if keys are spread evenly. */
    long recordsPerSubtask() {
        return number("records") / parallelism();
    }

    /** Flink as fast as settings make it: objects are reused, and no type falls back to Kryo. */
    StreamExecutionEnvironment environment() {
        Configuration configuration = new Configuration();
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("pipeline.generic-types", "false");
        long interval = number("checkpoint-interval-ms");
        if (interval > 0) {
            configuration.setString("execution.checkpointing.interval", interval + " ms");
            configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        }
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(parallelism());
        return environment;
    }
}
