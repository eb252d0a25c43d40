import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.support.serializer.DelegatingByTypeSerializer;
import org.springframework.kafka.support.serializer.ErrorHandlingDeserializer;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A Spring application whose listeners all fail: java -Dbootstrap=… -Dprefix=… SpringLetters.
 *
 * PREFIX.plain is tried three times, PREFIX.counted too, which says so; PREFIX.typed cannot be decoded; PREFIX.retried
 * goes through its retry topic. The letters of each lie in the topic of its name with -dlt. It runs until it is ended.
 */
@Configuration
@EnableKafkaRetryTopic
public class SpringLetters {

    static class CardDeclined extends RuntimeException {
        CardDeclined(String message, Throwable cause) {
            super(message, cause);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        try (var context = new AnnotationConfigApplicationContext(SpringLetters.class)) {
            Thread.currentThread().join();
        }
    }

    @KafkaListener(topics = "${prefix}.plain", groupId = "billing")
    void plain(ConsumerRecord<byte[], byte[]> record) {
        charge(record);
    }

    @KafkaListener(topics = "${prefix}.counted", groupId = "billing", containerFactory = "counting")
    void counted(ConsumerRecord<byte[], byte[]> record) {
        charge(record);
    }

    @KafkaListener(topics = "${prefix}.typed", groupId = "billing", containerFactory = "typed")
    void typed(ConsumerRecord<Long, Long> record) {
        throw new AssertionError("what cannot be decoded reaches no listener");
    }

    @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 100), autoCreateTopics = "false")
    @KafkaListener(topics = "${prefix}.retried", groupId = "billing")
    void retried(ConsumerRecord<byte[], byte[]> record) {
        charge(record);
    }

    private void charge(ConsumerRecord<byte[], byte[]> record) {
        String card = new String(record.value(), StandardCharsets.UTF_8);
        try {
            throw new IllegalStateException("no funds");
        } catch (IllegalStateException error) {
            throw new CardDeclined("declined: " + card, error);
        }
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<Object, Object> kafkaListenerContainerFactory(Environment settings,
            KafkaTemplate<Object, Object> letters) {
        return factory(undecoded(settings), letters);
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<Object, Object> counting(Environment settings,
            KafkaTemplate<Object, Object> letters) {
        var factory = factory(undecoded(settings), letters);
        factory.getContainerProperties().setDeliveryAttemptHeader(true);
        return factory;
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<Object, Object> typed(Environment settings,
            KafkaTemplate<Object, Object> letters) {
        return factory(consuming(settings, Map.of("key.deserializer", ErrorHandlingDeserializer.class,
                "value.deserializer", ErrorHandlingDeserializer.class,
                ErrorHandlingDeserializer.KEY_DESERIALIZER_CLASS, LongDeserializer.class,
                ErrorHandlingDeserializer.VALUE_DESERIALIZER_CLASS, LongDeserializer.class)), letters);
    }

    private ConcurrentKafkaListenerContainerFactory<Object, Object> factory(Map<String, Object> consuming,
            KafkaTemplate<Object, Object> letters) {
        var factory = new ConcurrentKafkaListenerContainerFactory<Object, Object>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(consuming));
        factory.setCommonErrorHandler(
                new DefaultErrorHandler(new DeadLetterPublishingRecoverer(letters), new FixedBackOff(0, 2)));
        return factory;
    }

    private Map<String, Object> undecoded(Environment settings) {
        return consuming(settings, Map.of("key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class));
    }

    private Map<String, Object> consuming(Environment settings, Map<String, Object> more) {
        var all = new HashMap<String, Object>(more);
        all.put("bootstrap.servers", settings.getRequiredProperty("bootstrap"));
        all.put("auto.offset.reset", "earliest");
        return all;
    }

    @Bean
    KafkaTemplate<Object, Object> defaultRetryTopicKafkaTemplate(Environment settings) {
        Map<String, Object> producing = Map.of("bootstrap.servers", settings.getRequiredProperty("bootstrap"));
        var serializer = new DelegatingByTypeSerializer(
                Map.of(byte[].class, new ByteArraySerializer(), Long.class, new LongSerializer()));
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(producing, serializer, serializer));
    }

    @Bean
    TaskScheduler taskScheduler() {
        return new ThreadPoolTaskScheduler();
    }
}
