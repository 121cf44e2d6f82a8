//! Domains of libvirt: the XML that a hook reads from its standard input.
//!
//! The text is bounded, document types are refused, so no entity is expanded, and the number of
//! elements is bounded.

use crate::shape::{GuestShape, OwnCpus, numa_cells, vcpu_count};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeSet;
use trimtab_core::set::CpuSet;

/// Longest text. Chosen: a domain with a thousand devices has 500 KB.
pub const DOMAIN_MAX: u64 = 4 << 20;
/// Most elements, attributes and texts.
const NODES_MAX: u32 = 200_000;
/// Most NUMA nodes of a guest that are read.
const CELLS_MAX: usize = 1_024;

/// Reads the shape of a guest.
///
/// # Errors
/// It is not the XML of a domain, or it has no count of vCPUs.
///
/// # Examples
/// ```
/// let xml = "<domain><vcpu current='2'>4</vcpu><iothreads>1</iothreads></domain>";
/// let guest = trimtab_hook::domain::shape(xml)?;
/// assert_eq!((guest.vcpus, guest.threads, guest.iothreads), (2, 1, 1));
/// # Ok::<(), String>(())
/// ```
pub fn shape(xml: &str) -> Result<GuestShape, String> {
    if xml.len() as u64 > DOMAIN_MAX {
        return Err(format!("the domain has more than {DOMAIN_MAX} bytes"));
    }
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options)
        .map_err(|error| format!("the domain is no XML that can be used: {error}"))?;
    let domain = document.root_element();
    if !domain.has_tag_name("domain") {
        return Err("the XML is no domain".to_owned());
    }
    let vcpu = child(domain, "vcpu").ok_or("the domain has no <vcpu>")?;
    let text = vcpu.attribute("current").or(vcpu.text()).unwrap_or_default();
    let vcpus = vcpu_count(text).ok_or("the <vcpu> of the domain has no usable number")?;
    let cpu = child(domain, "cpu");
    let threads = cpu
        .and_then(|cpu| child(cpu, "topology")?.attribute("threads")?.parse().ok())
        .filter(|threads| (1..=vcpus).contains(threads));
    let iothreads = child(domain, "iothreads").and_then(|node| vcpu_count(node.text()?));
    Ok(GuestShape {
        vcpus,
        threads: threads.unwrap_or(1),
        cells: cpu.map(|cpu| cells(cpu, vcpus)).unwrap_or_default(),
        own: own(domain, vcpu, vcpus),
        iothreads: iothreads.unwrap_or(0),
    })
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// Returns the vCPUs of each NUMA node of the guest; none if a node cannot be used.
fn cells(cpu: Node<'_, '_>, vcpus: u32) -> Vec<BTreeSet<u32>> {
    let Some(numa) = cpu.children().find(|child| child.has_tag_name("numa")) else { return Vec::new() };
    let listed = numa.children().filter(|child| child.has_tag_name("cell")).take(CELLS_MAX);
    let cell = |(number, cell): (u32, Node<'_, '_>)| {
        let id = cell.attribute("id").map_or(Some(number), |id| id.parse().ok())?;
        // A node without vCPUs is one of memory.
        Some((id, cell.attribute("cpus").unwrap_or_default().parse().ok()?))
    };
    numa_cells((0..).zip(listed).map(cell), vcpus)
}

/// Returns the CPUs that the domain itself gives its vCPUs.
fn own(domain: Node<'_, '_>, vcpu: Node<'_, '_>, vcpus: u32) -> OwnCpus {
    // libvirt asks numad for the CPUs, and binds the vCPUs to them.
    if vcpu.attribute("placement") == Some("auto") {
        return OwnCpus::Shared;
    }
    let usual = match vcpu.attribute("cpuset").map(str::parse::<CpuSet>) {
        None => None,
        Some(Ok(list)) => Some(list),
        // Lists with ^ leave a CPU out.
        Some(Err(_)) => return OwnCpus::Shared,
    };
    let mut masks = vec![usual; vcpus as usize];
    let tune = domain.children().find(|child| child.has_tag_name("cputune"));
    let pins = tune.into_iter().flat_map(|tune| tune.children()).filter(|node| node.has_tag_name("vcpupin"));
    for pin in pins {
        let number = pin.attribute("vcpu").and_then(|number| number.parse::<usize>().ok());
        let list = pin.attribute("cpuset").and_then(|list| list.parse::<CpuSet>().ok());
        match (number, list) {
            (Some(number), Some(list)) => {
                // The vCPUs that are not online have pins too.
                if let Some(mask) = masks.get_mut(number) {
                    *mask = Some(list);
                }
            }
            _ => return OwnCpus::Shared,
        }
    }
    OwnCpus::of(&masks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn domain(inner: &str) -> String {
        format!("<domain type='kvm' id='3'><name>web</name>{inner}</domain>")
    }

    #[test]
    fn vcpus_threads_and_nodes_are_read() {
        let inner = "<vcpu placement='static'>4</vcpu><iothreads>2</iothreads>\
            <cpu><topology sockets='1' dies='1' cores='2' threads='2'/>\
            <numa><cell id='1' cpus='2-3' memory='1' unit='GiB'/><cell id='0' cpus='0-1' memory='1'/>\
            <cell id='2' memory='1'/></numa></cpu>";
        let guest = shape(&domain(inner)).unwrap();
        assert_eq!((guest.vcpus, guest.threads, guest.iothreads), (4, 2, 2));
        assert_eq!(guest.cells, [BTreeSet::from([0, 1]), BTreeSet::from([2, 3])]);
        assert_eq!(guest.own, OwnCpus::None);
        // Absurd threads are those of a guest that sees none.
        let inner = "<vcpu>2</vcpu><cpu><topology threads='9'/><numa><cell cpus='0-x'/></numa></cpu>";
        let guest = shape(&domain(inner)).unwrap();
        assert_eq!((guest.threads, guest.cells), (1, Vec::new()));
    }

    #[test]
    fn pins_of_the_domain_are_judged() {
        let own = |inner: &str| shape(&domain(inner)).unwrap().own;
        let pins = |first: &str, second: &str| {
            format!(
                "<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='{first}'/>\
                 <vcpupin vcpu='1' cpuset='{second}'/><vcpupin vcpu='7' cpuset='7'/></cputune>"
            )
        };
        assert_eq!(own(&pins("4", "5")), OwnCpus::Exclusive("4-5".parse().unwrap()));
        assert_eq!(own(&pins("0-7", "0-7")), OwnCpus::Shared);
        assert_eq!(own(&pins("0-7,^3", "4")), OwnCpus::Shared);
        assert_eq!(own("<vcpu cpuset='2-3'>2</vcpu>"), OwnCpus::Exclusive("2-3".parse().unwrap()));
        assert_eq!(own("<vcpu cpuset='0-7'>2</vcpu>"), OwnCpus::Shared);
        assert_eq!(own("<vcpu placement='auto'>2</vcpu>"), OwnCpus::Shared);
    }

    #[test]
    fn hostile_xml_is_refused() {
        let entity = "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]>";
        let outside = "<!DOCTYPE d [<!ENTITY a SYSTEM 'file:///etc/shadow'>]>";
        let many = "<a/>".repeat(NODES_MAX as usize);
        for (text, word) in [
            ("", "no XML"),
            ("<domain>", "no XML"),
            ("<network><vcpu>2</vcpu></network>", "no domain"),
            ("<domain/>", "no <vcpu>"),
            ("<domain><vcpu>0</vcpu></domain>", "no usable number"),
            ("<domain><vcpu>99999999999</vcpu></domain>", "no usable number"),
            ("<domain><vcpu current='x'>2</vcpu></domain>", "no usable number"),
            (&format!("{entity}<domain><vcpu>&b;</vcpu></domain>"), "no XML"),
            (&format!("{outside}<domain><vcpu>&a;</vcpu></domain>"), "no XML"),
            (&domain(&format!("<vcpu>2</vcpu>{many}")), "no XML"),
            (&" ".repeat(usize::try_from(DOMAIN_MAX).unwrap() + 1), "more than"),
        ] {
            let said = shape(text).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn deep_xml_needs_no_deep_stack() {
        let depth = 60_000;
        let text = domain(&format!("<vcpu>2</vcpu>{}{}", "<a>".repeat(depth), "</a>".repeat(depth)));
        let read = std::thread::Builder::new().stack_size(256 << 10).spawn(move || shape(&text));
        assert_eq!(read.unwrap().join().unwrap().map(|guest| guest.vcpus), Ok(2));
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in ".{0,200}") {
            let _ = shape(&text);
        }

        #[test]
        fn any_values_give_vcpus_within_the_guest(
            count in 1_u32..64,
            lists in proptest::collection::vec("[0-9,^-]{0,8}", 0..6),
            threads in 0_u32..9,
        ) {
            let cells: String = lists.iter().map(|list| format!("<cell cpus='{list}'/>")).collect();
            let pins: String = lists.iter().map(|list| format!("<vcpupin vcpu='0' cpuset='{list}'/>")).collect();
            let inner = format!(
                "<vcpu>{count}</vcpu><cputune>{pins}</cputune>\
                 <cpu><topology threads='{threads}'/><numa>{cells}</numa></cpu>"
            );
            let guest = shape(&domain(&inner)).unwrap();
            prop_assert!(guest.vcpus == count && (1..=count).contains(&guest.threads));
            prop_assert!(guest.cells.iter().flatten().all(|vcpu| *vcpu < count));
        }
    }
}
