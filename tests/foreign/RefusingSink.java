import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** A sink of Kafka Connect that hands each record that it is given to the dead letters. */
public class RefusingSink extends SinkConnector {

    @Override
    public void start(Map<String, String> settings) {
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Refusal.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return Collections.nCopies(1, Map.of());
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public String version() {
        return "1";
    }

    public static class Refusal extends SinkTask {

        @Override
        public void start(Map<String, String> settings) {
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                context.errantRecordReporter().report(record, refused(record));
            }
        }

        private static RuntimeException refused(SinkRecord record) {
            return new IllegalArgumentException("the table has no column for " + record.value());
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
