//! Tests of machines from descriptions, and of the short texts that describe them.

use super::*;

#[test]
fn descriptions_make_machines() {
    let machine = synthetic("pack:2 numa:2(memory=62GB) l3:2 l2:2 core:2 pu:2");
    assert_sound(&machine);
    let count = |level| machine.at(level).count();
    assert_eq!(
        [Level::Package, Level::Node, Level::L3, Level::L2, Level::Core].map(count),
        [2, 4, 8, 16, 32]
    );
    assert_eq!(
        (machine.pu_count(), machine.smt(), machine.name()),
        (64, 2, "pack:2 numa:2(memory=62GB) l3:2 l2:2 core:2 pu:2")
    );
    assert_eq!(machine.nodes()[3].bytes, Some(62 << 30));
    assert_eq!(machine.cpus_of(&machine.cores()[1].pus), cpus("2-3"));
    let far = synthetic("core:4 pu:2(far)");
    assert_eq!(far.cpus_of(&far.cores()[1].pus), cpus("1,5"));
    assert_eq!(far.nodes().len(), 1, "every machine has memory");
    assert_eq!(synthetic("core:3").nodes()[0].bytes, None);
    // Extra nodes are numbered after the ordinary ones, independent of their position.
    let machine = synthetic("pack:2 [numa(memory=16GiB tier=hbm)] numa:2 core:2 [NUMANode(tier=cxl)]");
    assert_sound(&machine);
    let tiers: Vec<Tier> = machine.nodes().iter().map(|node| node.tier).collect();
    assert_eq!(tiers[..6], [Tier::Dram, Tier::Dram, Tier::Dram, Tier::Dram, Tier::Hbm, Tier::Hbm]);
    assert_eq!(tiers[6..], [Tier::Cxl; 8]);
    assert_eq!(machine.nodes()[5].near, 4..8);
    for (same, words) in [
        ("Socket:2 L3Cache:1 Core:4 PU:2", "pack:2 l3:1 core:4 pu:2"),
        ("  pack:2   core:2  ", "pack:2 core:2"),
        ("board:2 board:2 core:1", "group:2 group:2 core:1"),
        ("numa:2(memory=1024MB) core:1", "numa:2(memory=1GB) core:1"),
        ("core:2 thread:2", "core:2 pu:2"),
    ] {
        let renamed = |text| Parts { name: String::new(), ..synthetic(text).parts().clone() };
        assert_eq!(renamed(same), renamed(words), "{same}");
    }
}

#[test]
fn faults_in_descriptions_name_their_position() {
    for (text, at, word) in [
        ("", 0, "empty"),
        ("   ", 0, "empty"),
        ("foo:2", 0, "\"foo\" is not a level"),
        ("pack:2 foo:2", 7, "\"foo\" is not a level"),
        ("machine:1", 0, "not a level"),
        ("pack", 0, "lacks its count"),
        ("pack:2 core", 7, "lacks its count"),
        ("pack:", 5, "not a count"),
        ("pack:0", 5, "not a count"),
        ("pack:-1", 5, "not a count"),
        ("pack:2 core:x", 12, "not a count"),
        ("core:99999999999999999999", 5, "not a count"),
        ("core:65537", 5, "more than 65536 hardware threads"),
        ("pack:256 core:257", 14, "hardware threads"),
        ("pack:65536 core:65536 pu:65536", 16, "hardware threads"),
        ("numa:5000", 5, "NUMA nodes"),
        ("core:5000 [numa]", 10, "NUMA nodes"),
        ("pu:2 core:2", 5, "nothing can follow pu"),
        ("core:2 l2:2", 7, "l2 cannot be inside a core"),
        ("pack:2 pack:2", 7, "is given twice"),
        ("[numa] core:2", 0, "needs a level before it"),
        ("pack:2 [core] core:2", 8, "only [numa]"),
        ("pack:2 [numa core:2", 7, "not closed"),
        ("numa:2(memory=4GB core:2", 6, "not closed"),
        ("numa:2(memory=4XB) core:2", 0, "\"4XB\" is not a size"),
        ("numa:2(memory=99999999999TB) core:2", 0, "is not a size"),
        ("numa:2(tier=fast) core:2", 0, "\"fast\" is not a memory tier"),
        ("core:2 numa:2(color=red)", 7, "inside a core"),
        ("pack:1 numa:2(color=red)", 7, "not an attribute of numa"),
        ("pack:2(memory=4GB)", 6, "takes no attribute"),
        ("core:2 pu:2(near)", 11, "takes no attribute"),
    ] {
        let error = parse_synthetic(text).unwrap_err();
        assert!(error.to_string().contains(word), "{text:?}: {error}");
        assert_eq!(error.at, at, "{text:?}: {error}");
    }
}

#[test]
fn cpu_lists_are_short() {
    for (list, short) in [
        ("", ""),
        ("0", "0"),
        ("0-7,64-71", "0-7,64-71"),
        ("0,2,4,6,8", "0-8:2"),
        ("0,2,4,6,33,35,37", "0-6:2,33-37:2"),
        ("0,64,128,192", "0-192:64"),
        ("0,64", "0,64"),
        ("0-1,64-65", "0-1,64-65"),
        ("0,2-4", "0,2-4"),
        ("0,2,4-6", "0-4:2,5-6"),
    ] {
        assert_eq!(outline::list(&cpus(list)), short);
        assert_eq!(cpus(short), cpus(list), "and mean the same");
    }
}

#[test]
fn sizes_are_short() {
    let sizes = [0, 1023, 1024, 1536, 10 << 30, (251 << 30) + (700 << 20), 1 << 40, 3 << 39, u64::MAX];
    let words = sizes.map(outline::size);
    assert_eq!(
        words,
        ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 GiB", "252 GiB", "1 TiB", "1.5 TiB", "16 EiB"]
    );
}
