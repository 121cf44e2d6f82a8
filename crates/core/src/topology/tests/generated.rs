//! Property tests of generated machines, both valid and hostile.

use super::*;

/// Returns parts with runs that nest by construction: the cuts of each level are among the cuts of
/// the next.
fn laminar() -> impl proptest::strategy::Strategy<Value = Parts> {
    const LEVELS: [Level; 6] = [Level::Group, Level::Package, Level::Die, Level::L3, Level::L2, Level::Core];
    let cuts = prop::collection::vec(0usize..=LEVELS.len(), 1..40);
    let shuffle = any::<prop::sample::Index>();
    let flags = prop::collection::vec(any::<u8>(), 64);
    (cuts, shuffle, flags, 0..=LEVELS.len()).prop_map(|(cuts, shuffle, flags, node_level)| {
        let count = u32::try_from(cuts.len()).unwrap();
        let step = (1..).filter(|step| gcd(*step, count) == 1).nth(shuffle.index(4)).unwrap();
        let flag = |at: usize| flags[at % flags.len()];
        // PU `at` starts a new object of every level from `cuts[at]` inwards.
        let runs = |level: usize| -> Vec<(u32, u32)> {
            let starts = (0..count).filter(|&at| at == 0 || cuts[at as usize] <= level);
            let starts: Vec<u32> = starts.chain([count]).collect();
            starts.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
        };
        let mut parts =
            Parts { pus: (0..count).map(|at| OsCpu(at * step % count * 3)).collect(), ..Parts::default() };
        for (level, word) in LEVELS.into_iter().enumerate() {
            let keep = flag(level);
            for (at, (first, count)) in runs(level).into_iter().enumerate() {
                if keep & 3 != 0 && (keep & 4 == 0 || flag(at + first as usize) & 1 == 0) {
                    parts.domains.push(Domain { level: word, os: None, first, count });
                }
            }
        }
        parts.domains.sort_by_key(|domain| domain.first.wrapping_mul(7) % 5);
        for (at, (first, count)) in runs(node_level.min(LEVELS.len() - 1)).into_iter().enumerate() {
            let about = flag(at + 20);
            let tier = [Tier::Dram, Tier::Hbm, Tier::Cxl][usize::from(about % 3)];
            let os = u32::try_from(at * 5 % 97 + at / 97).unwrap();
            let has_cpus = about & 8 == 0;
            parts.nodes.push(NodePart {
                os: OsNode(os),
                first,
                count,
                bytes: Some(u64::from(about) << 28),
                tier,
                has_cpus,
            });
        }
        if flag(40) & 1 == 0 {
            let half: CpuSet = parts.pus.iter().copied().filter(|cpu| flag(cpu.index()) & 1 == 0).collect();
            parts.kinds.push(KindPart {
                cpus: half,
                mhz_max: Some(2_000),
                efficiency: Some(0),
                ..KindPart::default()
            });
            let all = parts.pus.iter().copied().collect();
            parts.kinds.push(KindPart {
                cpus: all,
                mhz_max: Some(4_000),
                efficiency: Some(u32::from(flag(41) & 1)),
                ..KindPart::default()
            });
        }
        parts.devices.push(Device {
            kind: DeviceKind::Gpu,
            name: "card<0>\u{7}".to_owned(),
            address: None,
            vendor: None,
            cpus: CpuSet::new(),
        });
        parts
    })
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns numbers around the limits and arbitrary ones.
fn number() -> impl proptest::strategy::Strategy<Value = u32> {
    prop_oneof![8 => 0u32..12, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

/// Returns arbitrary parts, which are mostly invalid.
fn garbage() -> impl proptest::strategy::Strategy<Value = Parts> {
    let level = prop::sample::select(Level::ALL.to_vec());
    let domain = (level, proptest::option::of(number()), number(), number());
    let domain = domain.prop_map(|(level, os, first, count)| Domain { level, os, first, count });
    let node = (number(), number(), number(), any::<Option<u64>>(), any::<bool>());
    let node = node.prop_map(|(os, first, count, bytes, has_cpus)| NodePart {
        os: OsNode(os),
        first,
        count,
        bytes,
        tier: if count % 2 == 0 { Tier::Dram } else { Tier::Gpu },
        has_cpus,
    });
    let some_cpus = || {
        prop::collection::vec(0u32..12, 0..6).prop_map(|cpus| cpus.into_iter().map(OsCpu).collect::<CpuSet>())
    };
    let figure = || proptest::option::of(number());
    let kind = (some_cpus(), proptest::option::of(".{0,3}"), figure(), figure(), figure());
    let kind = kind.prop_map(|(cpus, make, efficiency, mhz_max, capacity)| KindPart {
        cpus,
        make,
        efficiency,
        mhz_max,
        capacity,
    });
    let device = (some_cpus(), ".{0,8}").prop_map(|(cpus, name)| Device {
        kind: DeviceKind::Nic,
        address: Some(name.clone()),
        vendor: None,
        name,
        cpus,
    });
    let cache = (number(), number(), any::<u64>());
    let cache = cache.prop_map(|(first, count, bytes)| CachePart { level: Level::L3, first, count, bytes });
    let speed = (number(), any::<Option<u64>>(), any::<Option<u64>>());
    let speed =
        speed.prop_map(|(node, bandwidth, latency)| MemorySpeed { node: OsNode(node), bandwidth, latency });
    let pus = prop_oneof![3 => (1u32..12).prop_map(|count| (0..count).collect::<Vec<_>>()), 1 => prop::collection::vec(number(), 0..9)];
    (
        pus,
        prop::collection::vec(domain, 0..6),
        prop::collection::vec(node, 0..4),
        prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any::<u32>(), 0..17)],
        prop::collection::vec(kind, 0..4),
        prop::collection::vec(device, 0..3),
        (some_cpus(), proptest::option::of(some_cpus()), ".{0,10}"),
        (prop::collection::vec(cache, 0..4), prop::collection::vec(speed, 0..4)),
    )
        .prop_map(|(pus, domains, nodes, distances, kinds, devices, rest, (caches, memory_speeds))| {
            Parts {
                name: rest.2,
                cpu: CpuModel::default(),
                pus: pus.into_iter().map(OsCpu).collect(),
                domains,
                nodes,
                distances,
                kinds,
                devices,
                offline: rest.0,
                allowed: rest.1,
                caches,
                memory_speeds,
            }
        })
}

/// Derives an occupancy and a request from a number, and checks the plan for it.
fn planned(machine: &Machine, seed: u64) -> Marks {
    let bit = |cpu: OsCpu, salt: u32| (seed.rotate_left(salt) >> (cpu.index() % 59)) & 3 == 3;
    let mut taken = Taken::nothing(machine.cpus());
    taken.allowed = machine.cpus().iter().filter(|&cpu| !bit(cpu, 7)).collect();
    taken.held = machine.cpus().iter().filter(|&cpu| bit(cpu, 19)).collect();
    taken.pinned = machine.cpus().iter().filter(|&cpu| bit(cpu, 31)).collect();
    taken.busy = machine.cpus().iter().filter(|&cpu| bit(cpu, 43)).map(|cpu| (cpu, 600)).collect();
    let layouts =
        [Layout::Compact, Layout::Scatter, Layout::Balanced, Layout::Stride(Stride::OnePer(Level::L2))];
    let request = Request {
        amount: Amount::Cores(u32::try_from(seed % 9).unwrap() + 1),
        strategy: layouts[usize::try_from(seed % 4).unwrap()],
        or_fewer: true,
        ..Request::default()
    };
    let marks = Marks::around(machine, &taken);
    let Ok(plan) = plan(machine, &request, &taken) else { return marks };
    assert_eq!(check(machine, &request, &taken, &plan), []);
    marks.with_plan(&plan)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn nested_parts_make_sound_machines(parts in laminar(), seed in any::<u64>()) {
        // Only a node inside a core may cross here.
        let machine = match Machine::build(parts.clone()) {
            Ok(machine) => machine,
            Err(MachineError::Crossing(Level::Core, Level::Node)) => return Ok(()),
            Err(error) => panic!("{error}: {parts:?}"),
        };
        assert_sound(&machine);
        let mut shuffled = parts;
        shuffled.domains.reverse();
        shuffled.nodes.reverse();
        prop_assert_eq!(&machine.objects, &Machine::build(shuffled).unwrap().objects);
        assert_pictured(&machine, &planned(&machine, seed));
        assert_pictured(&machine, &Marks::default());
    }

    #[test]
    fn hostile_parts_are_built_soundly_or_refused(parts in garbage(), seed in any::<u64>()) {
        if let Ok(machine) = Machine::build(parts) {
            assert_sound(&machine);
            assert_pictured(&machine, &planned(&machine, seed));
        }
    }

    #[test]
    fn any_text_is_a_machine_or_refused(text in "((group|pack|numa|l3|l2|core|pu):[0-9]{1,2} ?){1,5}|[a-z0-9:()\\[\\]= ]{0,40}|.{0,20}") {
        match parse_synthetic(&text) {
            Ok(machine) if machine.pu_count() <= 200 => assert_sound(&machine),
            Ok(_) => {}
            Err(error) => {
                prop_assert!(error.at <= text.len());
                prop_assert!(!error.problem.is_empty());
            }
        }
    }
}
