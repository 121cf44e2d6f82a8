"""Tasks of Ray's; prints the CPUs that it counts, and what a worker is told of threads."""

import os

import ray

ray.init(logging_level="error", log_to_driver=False, include_dashboard=False, object_store_memory=100 << 20)


@ray.remote
def work(number):
    return sum(i * number % 7 for i in range(300_000)), os.environ.get("OMP_NUM_THREADS")


print("CPUs", int(ray.cluster_resources()["CPU"]))
for line in ray.get([work.remote(number) for number in range(1, 5)]):
    print(*line)
ray.shutdown()
