import java.util.concurrent.ForkJoinPool;
import java.util.stream.LongStream;

/** Parallel streams over the common pool; prints how many processors there are. */
public class Streams {
    public static void main(String[] words) {
        long sum = 0;
        for (int round = 0; round < 40; round++) {
            final int by = 7 + round;
            sum += LongStream.range(0, 4_000_000).parallel().map(i -> i * by % 1013).sum();
        }
        System.out.println("sum " + sum + " processors " + Runtime.getRuntime().availableProcessors()
            + " pool " + ForkJoinPool.getCommonPoolParallelism());
    }
}
