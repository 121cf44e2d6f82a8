use std::time::Instant;
use trimtab_sim::figures::{self, Summary};
fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut reports = Vec::new();
    for name in figures::NAMES.iter().filter(|n| names.is_empty() || names.iter().any(|m| m == *n)) {
        let t = Instant::now();
        let figure = figures::find(name).unwrap();
        let list: Vec<(usize, u32)> = figure.runs().collect();
        let next = std::sync::atomic::AtomicUsize::new(0);
        let results = std::sync::Mutex::new(vec![0.0; list.len()]);
        let slow = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if i >= list.len() {
                            break;
                        }
                        let t = Instant::now();
                        let v = figure.cells[list[i].0].run(list[i].1);
                        results.lock().unwrap()[i] = v;
                        slow.lock()
                            .unwrap()
                            .push((t.elapsed().as_millis(), figure.cells[list[i].0].name.clone()));
                    }
                });
            }
        });
        let results = results.into_inner().unwrap();
        let mut runs: Vec<Vec<f64>> = vec![Vec::new(); figure.cells.len()];
        for (k, v) in list.iter().zip(&results) {
            runs[k.0].push(*v);
        }
        let report = figure.report(&runs);
        println!("== {name} {} runs in {:?}", list.len(), t.elapsed());
        let mut slow = slow.into_inner().unwrap();
        slow.sort();
        slow.reverse();
        println!("   slowest {:?}", &slow[..slow.len().min(3)]);
        let mut series: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
        for p in &report.points {
            series.entry(&p.series).or_default().push(format!("{}={:.3}", p.x, p.y));
        }
        for (k, v) in series {
            println!("  {k}: {}", v.join(" "));
        }
        for p in &report.values {
            println!(
                "  {:40} pub {:8.3} sim {:8.3} {:+.1} % {:?}",
                p.published.key,
                p.published.value,
                p.simulated,
                p.error * 100.0,
                p.published.used
            );
        }
        for c in report.claims.iter().filter(|c| !c.right_order) {
            println!("  WRONG {} : {:.3} {:.3}", c.what, c.left, c.right);
        }
        println!("  {:?}", Summary::of([&report]));
        reports.push(report);
    }
    println!("{:?}", Summary::of(&reports));
}
