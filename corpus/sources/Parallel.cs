// A parallel loop over the pool of threads.
using System;
using System.Threading;
using System.Threading.Tasks;

static class Program {
    static void Main() {
        long total = 0;
        Parallel.For(0, 64, part => {
            long sum = 0;
            for (long i = part; i < 20000000; i += 8) sum += i * (part + 7) % 1013;
            Interlocked.Add(ref total, sum);
        });
        Console.WriteLine("total {0} processors {1}", total, Environment.ProcessorCount);
    }
}
