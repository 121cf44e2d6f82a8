//! Threads of Rust's standard library: scoped, named, panicking.

use std::{fs, thread};

fn here() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    let letters = ["A", "B"].map(|letter| (std::env::var(format!("CPU_{letter}")).unwrap(), letter));
    letters.iter().find(|(number, _)| *number == list).map_or("AB".to_owned(), |(_, letter)| letter.to_string())
}

fn main() {
    let masks = thread::scope(|scope| {
        let outer = scope.spawn(|| (here(), thread::scope(|scope| scope.spawn(here).join().unwrap())));
        outer.join().unwrap()
    });
    let name = thread::Builder::new().name("worker".into()).stack_size(1 << 20);
    let name = name.spawn(|| thread::current().name().unwrap().to_owned()).unwrap().join().unwrap();
    std::panic::set_hook(Box::new(|_| {}));
    assert!(thread::spawn(|| panic!("as planned")).join().is_err());
    let sum: usize = (0..200).map(|i| thread::spawn(move || i)).map(|thread| thread.join().unwrap()).sum();
    let parallelism = || thread::available_parallelism().unwrap();
    let born = thread::spawn(parallelism).join().unwrap();
    println!("{} {} {name} {sum} cpus {} {born}", masks.0, masks.1, parallelism());
}
