// Two workers that add, and hashes in the pool of threads; prints how many CPUs there are.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const os = require('os');

if (!isMainThread) {
  let sum = 0;
  for (let i = workerData; i < 120_000_000; i += 2) sum = (sum + i * 7) % 1_000_003;
  parentPort.postMessage(sum);
} else {
  const work = [0, 1].map((part) => new Promise((done) => new Worker(__filename, { workerData: part }).on('message', done)));
  const hashes = [1, 2, 3, 4].map((part) => new Promise((done) =>
    crypto.pbkdf2('word', 'salt' + part, 60000, 32, 'sha256', (_, key) => done(key.toString('hex')))));
  Promise.all([...work, ...hashes]).then((results) => {
    console.log(results.join('\n'));
    console.log('CPUs', os.availableParallelism());
  });
}
