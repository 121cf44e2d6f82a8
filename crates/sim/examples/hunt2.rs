use trimtab_core::drive::Go;
use trimtab_sim::scenario;
use trimtab_sim::swarm::*;
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let size = if a[2] == 0 { Size::Small } else { Size::Any };
    let draft = draw(a[0], a[1], size);
    let v = run(&draft).violations;
    let Some(first) = v.first() else {
        println!("clean");
        return;
    };
    let s = shrink(&draft, first.law);
    println!("{:?}", s.violations);
    let sc = s.draft.scenario();
    let lines = std::cell::RefCell::new(Vec::new());
    scenario::run(
        &sc,
        &mut |w| {
            let l: Vec<String> = w
                .threads()
                .map(|t| {
                    format!(
                        "{}.{}@{} {:?} r{:.1} w{:.1} m{}",
                        t.program,
                        t.rank,
                        t.cpu,
                        t.activity,
                        t.run.0 as f64 / 1e6,
                        t.wait.0 as f64 / 1e6,
                        t.mask
                    )
                })
                .collect();
            lines.borrow_mut().push(format!("{:.1} {}", w.now().0 as f64 / 1e6, l.join(" | ")));
        },
        &mut |st| {
            for d in &st.turn.decisions {
                lines.borrow_mut().push(format!("    {} {} because {}", d.thread, d.act, d.reason));
            }
            for f in &st.turn.findings {
                lines.borrow_mut().push(format!("   ! {f:?}"));
            }
            Go::On
        },
    );
    let l = lines.borrow();
    let n = l.len();
    let k = a[3] as usize;
    for x in &l[n.saturating_sub(k)..] {
        println!("{x}");
    }
}
