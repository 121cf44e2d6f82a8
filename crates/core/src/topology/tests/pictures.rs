//! Snapshot tests of the pictures of machines and plans.

use super::*;

/// Returns a laptop: six P-cores with two threads, eight E-cores in modules of four, two LP-E-cores
/// outside the L3; a GPU and a NIC; an offline CPU.
fn laptop() -> Machine {
    use Level::{Core, L2, L3, Package};
    let mut domains = vec![domain(Package, 0, 22), domain(L3, 0, 20)];
    domains.extend((0..6).flat_map(|at| [domain(L2, at * 2, 2), domain(Core, at * 2, 2)]));
    domains.extend([domain(L2, 12, 4), domain(L2, 16, 4), domain(L2, 20, 2)]);
    let device = |kind, name: &str, address: &str| Device {
        kind,
        name: name.to_owned(),
        address: Some(address.to_owned()),
        vendor: None,
        cpus: cpus("0-21"),
    };
    Machine::build(Parts {
        name: "laptop".to_owned(),
        domains,
        nodes: vec![NodePart { bytes: Some(31 << 30), ..node(0, 0, 22) }],
        kinds: vec![
            kind("0-11", 2, Some(5000), None),
            kind("12-19", 1, Some(3900), None),
            kind("20-21", 0, Some(2500), None),
        ],
        devices: vec![
            device(DeviceKind::Gpu, "renderD128", "0000:00:02.0"),
            device(DeviceKind::Nic, "wlan0", "0000:00:14.3"),
            device(DeviceKind::Storage, "nvme0n1", "0000:02:00.0"),
        ],
        offline: cpus("22"),
        ..bare(22)
    })
    .unwrap()
}

/// Returns a server with accelerators: consecutive memory-only nodes, distances from firmware,
/// devices near some nodes.
fn accelerated() -> Machine {
    let gpu = |os| NodePart { tier: Tier::Gpu, has_cpus: false, bytes: Some(96 << 30), ..node(os, 0, 0) };
    let dram = |os, first| NodePart { bytes: Some(480 << 30), ..node(os, first, 8) };
    let device = |kind, name: &str, at| Device {
        kind,
        name: name.to_owned(),
        address: None,
        vendor: None,
        cpus: cpus(at),
    };
    Machine::build(Parts {
        name: "accelerated".to_owned(),
        nodes: vec![dram(0, 0), dram(1, 8), gpu(2), gpu(3), gpu(4), gpu(5)],
        distances: vec![
            10, 40, 80, 80, 120, 120, //
            40, 10, 120, 120, 80, 80, //
            80, 120, 10, 90, 130, 130, //
            80, 120, 90, 10, 130, 130, //
            120, 80, 130, 130, 10, 90, //
            120, 80, 130, 130, 90, 10,
        ],
        devices: vec![
            device(DeviceKind::Gpu, "GH200 480GB", "0-7"),
            device(DeviceKind::Gpu, "GH200 480GB", "8-15"),
            device(DeviceKind::Nic, "mlx5_0 ib0", "8-15"),
        ],
        ..with_domains(
            16,
            &[(Level::Package, 0, 8), (Level::L3, 0, 8), (Level::Package, 8, 8), (Level::L3, 8, 8)],
        )
    })
    .unwrap()
}

/// Request for cores with a layout, on a machine with some CPUs held, busy, pinned or disallowed.
struct Scene {
    cores: u32,
    layout: Layout,
    held: &'static str,
    busy: &'static str,
    pinned: &'static str,
    out: &'static str,
}

const QUIET: Scene = Scene { cores: 0, layout: Layout::Compact, held: "", busy: "", pinned: "", out: "" };

fn marks(machine: &Machine, scene: &Scene) -> Marks {
    let mut taken = Taken::nothing(machine.cpus().difference(&cpus(scene.out)));
    taken.held = cpus(scene.held);
    taken.pinned = cpus(scene.pinned);
    taken.busy = cpus(scene.busy).iter().map(|cpu| (cpu, 700)).collect();
    let marks = Marks::around(machine, &taken);
    if scene.cores == 0 {
        return marks;
    }
    let amount = Amount::Cores(scene.cores);
    let ask = |share| Request { amount, strategy: scene.layout, share, ..Request::default() };
    let made = plan(machine, &ask(false), &taken).or_else(|_| plan(machine, &ask(true), &taken));
    marks.with_plan(&made.unwrap())
}

/// Returns the summary and the picture as the program prints them.
fn page(machine: &Machine, marks: &Marks, width: usize) -> String {
    format!("{}\n\n{}", draw::summary(machine), draw::grid(machine, marks, width))
}

#[test]
fn pictures_of_machines() {
    let plain = |text: &str| page(&synthetic(text), &Marks::default(), draw::WIDTH);
    insta::assert_snapshot!("two_cores", plain("core:2"));
    insta::assert_snapshot!("two_sockets_of_64", plain("pack:2 numa:1(memory=251GB) l3:8 core:8 pu:2(far)"));
    insta::assert_snapshot!("one_l3_per_socket", plain("pack:2 numa:1(memory=503GB) l3:1 core:28 pu:2(far)"));
    insta::assert_snapshot!("no_caches", plain("pack:2 core:64"));
    insta::assert_snapshot!("one_package_per_cpu", plain("numa:2 pack:16 core:1"));
    insta::assert_snapshot!("many_nodes", plain("numa:64(memory=4GB) core:2"));
    insta::assert_snapshot!(
        "many_threads",
        plain("numa:1(memory=188GB) [numa(memory=16GB tier=hbm)] l2:12 core:2 pu:4(far)")
    );
    insta::assert_snapshot!(
        "memory_without_cores",
        plain("pack:2 [numa(memory=16GB tier=hbm)] numa:2(memory=62GB) core:4")
    );
    insta::assert_snapshot!("groups_and_dies", plain("group:2 pack:2 die:2 numa:1(memory=2TB) l3:2 core:4"));
    let unordered = Parts {
        pus: [0, 2, 4, 6, 1, 3, 5, 7].map(OsCpu).to_vec(),
        ..with_domains(8, &[(Level::Package, 0, 4), (Level::Package, 4, 4)])
    };
    let unordered = Machine::build(unordered).unwrap();
    insta::assert_snapshot!("no_nodes", page(&unordered, &Marks::default(), draw::WIDTH));
    let clusters = (0..4).map(|at| domain(Level::Group, at * 4, 4));
    let inner = [domain(Level::Group, 0, 2), domain(Level::L2, 8, 2), domain(Level::L2, 10, 2)];
    let outer = [domain(Level::Package, 0, 16), domain(Level::L3, 0, 16)];
    let domains = clusters.chain(inner).chain(outer).collect();
    let clustered = Machine::build(Parts { domains, nodes: vec![node(0, 0, 16)], ..bare(16) }).unwrap();
    insta::assert_snapshot!("clusters", page(&clustered, &Marks::default(), draw::WIDTH));
    insta::assert_snapshot!("laptop", page(&laptop(), &Marks::default(), draw::WIDTH));
    insta::assert_snapshot!("accelerated", page(&accelerated(), &Marks::default(), draw::WIDTH));
    let thousands = plain("pack:16 numa:2(memory=512GB) l3:8 core:8 pu:2(far)");
    assert!(thousands.lines().count() < 200);
    insta::assert_snapshot!("thousands", thousands.lines().take(24).collect::<Vec<_>>().join("\n"));
}

#[test]
fn pictures_of_plans() {
    let scene = |text: &str, scene: &Scene, width| {
        let machine = synthetic(text);
        page(&machine, &marks(&machine, scene), width)
    };
    let server = "pack:2 numa:2(memory=62GB) l3:2 core:8 pu:2(far)";
    let shared = Scene { cores: 12, held: "0-3,64-67,20,84", busy: "40-42", pinned: "57", ..QUIET };
    insta::assert_snapshot!("shared_server", scene(server, &shared, 80));
    insta::assert_snapshot!("shared_server_narrow", scene(server, &shared, 40));
    insta::assert_snapshot!("shared_server_wide", scene(server, &shared, 160));
    let scatter = Scene { layout: Layout::Scatter, ..shared };
    insta::assert_snapshot!("scattered", scene(server, &scatter, 80));
    let modules = Scene { cores: 6, layout: Layout::Stride(Stride::OnePer(Level::L2)), held: "9", ..QUIET };
    insta::assert_snapshot!("stride_over_modules", scene("pack:2 l3:2 l2:4 core:2", &modules, 80));
    let container = Scene { cores: 3, busy: "18", out: "0-15,20-31,32-48,51-63", ..QUIET };
    insta::assert_snapshot!("container", scene("numa:2 l3:2 core:8 pu:2(far)", &container, 80));
    let crowded = Scene { cores: 4, busy: "1", held: "2", pinned: "3", ..QUIET };
    insta::assert_snapshot!("crowded", scene("core:4", &crowded, 80));
    let laptop = laptop();
    let picture = page(&laptop, &marks(&laptop, &Scene { cores: 7, busy: "13", ..QUIET }), 80);
    insta::assert_snapshot!("laptop_plan", picture);
}

#[test]
fn drawings() {
    let small = synthetic("numa:1(memory=4GB) core:2 pu:2");
    let marked = marks(&small, &Scene { cores: 1, held: "3", ..QUIET });
    insta::assert_snapshot!("drawing", svg::picture(&small, &marked));
    let large = synthetic("pack:16 numa:2(memory=512GB) l3:8 core:8 pu:2(far)");
    for machine in [laptop(), accelerated(), large] {
        let scene = Scene { cores: 5, busy: "1", pinned: "3", out: "6", ..QUIET };
        assert_pictured(&machine, &marks(&machine, &scene));
    }
    let hostile = Parts { name: "<a href=\"x\">&\u{202e}\n</a>".to_owned(), ..bare(1) };
    let picture = svg::picture(&Machine::build(hostile).unwrap(), &Marks::default());
    assert!(picture.contains(">&lt;a href=&quot;x&quot;&gt;&amp;??&lt;/a&gt;<"), "{picture}");
}
