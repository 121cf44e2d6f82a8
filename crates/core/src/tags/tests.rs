use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const ROOT: Requester = Requester { uid: 0 };
const ANN: Requester = Requester { uid: 1_000 };
const BOB: Requester = Requester { uid: 1_001 };

fn process(pid: u32) -> Mark {
    Mark::Process { pid, start: 7 }
}

fn thread(pid: u32, tid: u32) -> Mark {
    Mark::Thread { pid, tid, start: 7 }
}

fn owner(pid: u32, uid: u32) -> Option<Owner> {
    Some(Owner { pid, real: uid, effective: uid })
}

#[test]
fn ones_own_threads_and_no_others() {
    let mut all = Registry::new(Reach::All);
    let now = Moment(1);
    assert!(all.tag(ANN, process(5), owner(5, 1_000), None, now).is_ok());
    let refused = all.tag(BOB, process(5), owner(5, 1_000), None, now).unwrap_err();
    assert_eq!(refused, Refusal::NotYours { pid: 5, uid: 1_000 });
    assert!(all.tag(ROOT, process(5), owner(5, 1_000), None, now).is_ok());
    // As in the kernel: the user that started a privileged program may move it.
    let started = Some(Owner { pid: 6, real: 1_001, effective: 0 });
    assert!(all.tag(BOB, process(6), started, None, now).is_ok());
    let by: Vec<_> = all.tags().map(|(_, tag)| (tag.mark.clone(), tag.by.clone(), tag.only)).collect();
    assert_eq!(
        by,
        [
            (process(5), By::User(1_000), Some(1_000)),
            (process(5), By::User(0), None),
            (process(6), By::User(1_001), Some(1_001)),
        ]
    );
    // A user's daemon reaches no further than its user.
    let mut own = Registry::new(Reach::User(1_000));
    assert!(own.tag(ANN, process(5), owner(5, 1_000), None, now).is_ok());
    let refused = own.tag(ROOT, process(1), owner(1, 0), None, now).unwrap_err();
    assert_eq!(refused, Refusal::Reach { pid: 1, uid: 0, own: 1_000 });
}

#[test]
fn to_tag_twice_is_to_tag_once_and_groups_are_one_program() {
    let mut tags = Registry::new(Reach::All);
    let (first, new) = tags.tag(ANN, process(5), owner(5, 1_000), None, Moment(1)).unwrap();
    assert!(new);
    let before = tags.generation();
    assert_eq!(tags.tag(ANN, process(5), owner(5, 1_000), None, Moment(9)), Ok((first, false)));
    assert_eq!((tags.len(), tags.generation(), tags.get(first).unwrap().renewed), (1, before, Moment(9)));
    let group = || Some("solver".to_owned());
    let (again, new) = tags.tag(ANN, process(5), owner(5, 1_000), group(), Moment(10)).unwrap();
    assert!(new && again != first && tags.len() == 1, "another group is another tag");
    let (fellow, _) = tags.tag(ANN, process(6), owner(6, 1_000), group(), Moment(10)).unwrap();
    let (alone, _) = tags.tag(ANN, process(7), owner(7, 1_000), None, Moment(10)).unwrap();
    let (theirs, _) = tags.tag(BOB, process(8), owner(8, 1_001), group(), Moment(10)).unwrap();
    let program = |id| tags.get(id).unwrap().program;
    assert_eq!(program(again), program(fellow));
    assert_eq!(BTreeSet::from([again, alone, theirs].map(program)).len(), 3);
}

#[test]
fn only_ones_own_is_cleared_but_by_root() {
    let mut tags = Registry::new(Reach::All);
    let now = Moment(1);
    tags.tag(ANN, process(5), owner(5, 1_000), None, now).unwrap();
    tags.tag(ANN, thread(5, 6), owner(5, 1_000), None, now).unwrap();
    tags.tag(ANN, Mark::Cgroup("/a".into()), None, None, now).unwrap();
    tags.tag(ROOT, process(5), owner(5, 1_000), None, now).unwrap();
    let five = What::Process { pid: 5 };
    let cleared = tags.clear(BOB, Some(&five), now);
    assert_eq!((cleared.tags.len(), cleared.others, tags.len()), (0, 3, 4));
    let cleared = tags.clear(ANN, Some(&five), now);
    assert_eq!((cleared.tags.len(), cleared.others), (2, 1), "the process and its thread");
    assert_eq!(tags.clear(ANN, Some(&five), now), Cleared { tags: vec![], others: 1 }, "again is no error");
    // A clear without a name clears the user's own tags only, also for root.
    assert_eq!(tags.clear(ROOT, None, now).tags.len(), 1);
    assert_eq!(tags.clear(ROOT, Some(&What::Cgroup("/a".into())), now).tags.len(), 1);
    assert!(tags.is_empty());
}

#[test]
fn guests_tag_their_own_machine_and_are_cleared_with_it() {
    let mut tags = Registry::new(Reach::All);
    let vcpu = |vm: &str, index| Mark::Vcpu { vm: vm.into(), pid: 9, start: 7, index };
    let by = By::Guest("a".into());
    tags.tag_by(by.clone(), vcpu("a", 0), Moment(1)).unwrap();
    tags.tag_by(by.clone(), vcpu("a", 1), Moment(1)).unwrap();
    tags.tag_by(By::Guest("b".into()), vcpu("b", 0), Moment(1)).unwrap();
    assert_eq!(tags.clear_by(&by, |mark| *mark == vcpu("a", 1)).len(), 1);
    assert_eq!(tags.clear_by(&by, |mark| *mark == vcpu("a", 1)).len(), 0);
    assert_eq!(tags.clear(ROOT, Some(&What::Vm("a".into())), Moment(1)).tags.len(), 1);
    assert_eq!(tags.clear(ROOT, Some(&What::Vm("9".into())), Moment(1)).tags.len(), 1, "by its process");
}

#[test]
fn there_is_an_end_to_tags() {
    let mut tags = Registry::new(Reach::All);
    let limit = |limit| Err(Refusal::TooMany { limit });
    for pid in 1..=600u32 {
        let came = tags.tag(ANN, process(pid), owner(pid, 1_000), None, Moment(1)).map(|_| ());
        assert_eq!(came, if pid <= 512 { Ok(()) } else { limit(TAGS_OF_USER_MAX) });
    }
    // Renewing an existing tag needs no room.
    assert!(tags.tag(ANN, process(1), owner(1, 1_000), None, Moment(1)).is_ok());
    // For any number of users, there is room for root.
    for uid in 1_001..1_009u32 {
        for pid in 1..=512u32 {
            let came =
                tags.tag(Requester { uid }, process(pid), owner(pid, uid), None, Moment(1)).map(|_| ());
            assert!(came.is_ok() || came == limit(TAGS_MAX - ROOT_TAGS), "{came:?}");
        }
    }
    assert_eq!(tags.len(), TAGS_MAX - ROOT_TAGS);
    let by = By::Guest("a".into());
    assert_eq!(tags.tag_by(by, process(1), Moment(1)).map(|_| ()), limit(TAGS_MAX - ROOT_TAGS));
    for pid in 1..=4_000u32 {
        let came = tags.tag(ROOT, process(pid), owner(pid, 0), None, Moment(1)).map(|_| ());
        assert_eq!(came, if tags.len() < TAGS_MAX || came.is_ok() { Ok(()) } else { limit(TAGS_MAX) });
    }
    assert_eq!(tags.len(), TAGS_MAX);
}

#[test]
fn groups_are_few_since_each_may_hold_very_many() {
    let mut tags = Registry::new(Reach::All);
    let group = |at: usize| Mark::Cgroup(format!("/{at}"));
    for at in 0..100 {
        let came = tags.tag(ANN, group(at), None, None, Moment(1)).map(|_| ());
        let few = at < CGROUPS_OF_USER_MAX;
        let refused = Refusal::TooManyGroups { limit: CGROUPS_OF_USER_MAX };
        assert_eq!(came, if few { Ok(()) } else { Err(refused) });
        assert!(tags.tag(ROOT, group(at), None, None, Moment(1)).is_ok());
    }
    assert!(tags.tag(ANN, group(0), None, Some("g".into()), Moment(1)).is_ok(), "in another's stead");
    assert!(tags.tag(ANN, process(1), owner(1, 1_000), None, Moment(1)).is_ok());
}

/// However fast a user tags and clears, the work that this causes is bounded, and no other user is
/// delayed.
#[test]
fn a_user_who_tags_and_clears_in_quick_succession_must_wait() {
    let mut tags = Registry::new(Reach::All);
    let (mut granted, mut now) = (0u64, Moment(1));
    for _ in 0..10_000 {
        match tags.tag(ANN, process(5), owner(5, 1_000), None, now) {
            Ok((_, new)) => granted += u64::from(new),
            Err(refusal) => assert!(matches!(refusal, Refusal::TooOften { ms } if ms > 0), "{refusal}"),
        }
        tags.clear(ANN, None, now);
        now = now + Span::from_ms(10);
    }
    assert!((500..=1_024 + 400).contains(&granted), "{granted} in 100 s");
    assert!(tags.tag(BOB, process(6), owner(6, 1_001), None, now).is_ok());
    let before = tags.generation();
    for _ in 0..2_000 {
        tags.tag(ROOT, process(7), owner(7, 0), None, now).unwrap();
        tags.clear(ROOT, None, now);
    }
    assert_eq!(tags.generation(), before + 4_000);
}

#[test]
fn a_guest_that_cannot_make_up_its_mind_changes_nothing() {
    let mut tags = Registry::new(Reach::All);
    let vcpu = |index| Mark::Vcpu { vm: "a".into(), pid: 9, start: 7, index };
    let (by, lease) = (By::Guest("a".into()), Span::from_ms(60_000));
    let (first, _) = tags.tag_by(by.clone(), vcpu(0), Moment(1)).unwrap();
    let before = tags.generation();
    let mut now = Moment(1);
    for _ in 0..10_000 {
        tags.clear_later(&by, &vcpu(0), now + Span::from_ms(2_000));
        now = now + Span::from_ms(1);
        tags.end_due(now, lease);
        assert_eq!(tags.tag_by(by.clone(), vcpu(0), now), Ok((first, false)));
    }
    assert_eq!(tags.generation(), before);
    // A repeated clear does not postpone the end that the first one set.
    for ms in 0..2_000 {
        assert_eq!(tags.len(), 1);
        tags.clear_later(&by, &vcpu(0), now + Span::from_ms(ms) + Span::from_ms(2_000));
        tags.clear_later(&by, &vcpu(1), now);
        tags.end_due(now + Span::from_ms(ms), lease);
    }
    tags.end_due(now + Span::from_ms(2_000), lease);
    assert!(tags.is_empty());
    // Without a renewal for the length of a lease, a guest's tag ends; a user's tag needs no
    // renewal.
    tags.tag_by(by, vcpu(0), now).unwrap();
    tags.tag(ANN, process(5), owner(5, 1_000), None, now).unwrap();
    tags.end_due(now + Span::from_ms(60_001), lease);
    assert_eq!(tags.len(), 1);
}

#[test]
fn messages_are_short_printable_and_of_this_version() {
    let parse = |text: &str| Request::parse(text.as_bytes());
    let said = r#"{"version":1,"ask":{"tag":{"what":{"thread":{"pid":7,"tid":8}},"group":"g"}}}"#;
    let what = What::Thread { pid: 7, tid: 8 };
    assert_eq!(parse(said), Ok(Request::of(Ask::Tag { what, group: Some("g".into()) }, None)));
    assert_eq!(parse(r#"{"version":1,"ask":"status"}"#), Ok(Request::of(Ask::Status, None)));
    assert_eq!(parse(r#"{"version":2,"ask":{"teleport":1}}"#), Err(Refusal::Version { spoken: 1 }));
    assert_eq!(Request::parse(&[b' '; 5_000]), Err(Refusal::TooLong { most: 4_096 }));
    let group =
        |path: &str| parse(&format!(r#"{{"version":1,"ask":{{"clear":{{"what":{{"cgroup":"{path}"}}}}}}}}"#));
    let plain = Request::of(Ask::Clear { what: Some(What::Cgroup("/a/b".into())) }, None);
    for same in ["/a/b", "//a/b", "/a///b/"] {
        assert_eq!(group(same), Ok(plain.clone()), "one group has one name");
    }
    assert!(
        matches!(group("/"), Ok(Request { ask: Ask::Clear { what: Some(What::Cgroup(path)) }, .. }) if path == "/")
    );
    let garbage = [
        "",
        "{}",
        "tag 7",
        "[1]",
        r#"{"version":1}"#,
        r#"{"version":1,"ask":"reboot"}"#,
        r#"{"version":1,"ask":"status","more":1}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"process":{"pid":0}}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"process":{"pid":-1}}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"process":{"pid":4294967295}}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"process":{"pid":7,"tid":8}}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"cgroup":"/a/../b"}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"cgroup":"a"}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"vm":"\u001b[2J"}}}}"#,
        r#"{"version":1,"ask":{"tag":{"what":{"vm":"a"},"group":""}}}"#,
    ];
    for text in garbage {
        assert!(matches!(parse(text), Err(Refusal::Garbage(_))), "{text}: {:?}", parse(text));
    }
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        (1u32..4).prop_map(|pid| What::Process { pid }),
        (1u32..4, 1u32..4).prop_map(|(pid, tid)| What::Thread { pid, tid }),
        "/[a-c]".prop_map(What::Cgroup),
        "[a-c]".prop_map(What::Vm),
    ]
}

proptest! {
    #[test]
    fn any_line_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = Request::parse(&bytes) {
            let text = serde_json::to_vec(&request).unwrap();
            prop_assert_eq!(Request::parse(&text), Ok(request));
        }
    }

    #[test]
    fn requests_are_read_as_they_were_written(what in what(), group in prop::option::of("[a-z ]{1,64}"), ns in any::<Option<u64>>()) {
        for ask in [Ask::Tag { what: what.clone(), group }, Ask::Clear { what: Some(what) }, Ask::Clear { what: None }] {
            let request = Request::of(ask, ns);
            let text = serde_json::to_vec(&request).unwrap();
            prop_assert_eq!(Request::parse(&text), Ok(request));
        }
    }

    /// The oracle is a set of pairs of user and process, which is sufficient for processes.
    #[test]
    fn tags_are_a_set(steps in prop::collection::vec((0u32..3, 1u32..6, any::<bool>()), 0..100)) {
        let mut tags = Registry::new(Reach::All);
        let mut set = BTreeSet::new();
        for (uid, pid, tags_it) in steps {
            let who = Requester { uid };
            let before = tags.generation();
            let changed = if tags_it {
                // Process N belongs to user N mod 3.
                let may = uid == 0 || uid == pid % 3;
                let came = tags.tag(who, process(pid), owner(pid, pid % 3), None, Moment(1));
                prop_assert_eq!(came.is_ok(), may);
                may && set.insert((uid, pid))
            } else {
                tags.clear(who, Some(&What::Process { pid }), Moment(1));
                let size = set.len();
                set.retain(|(by, of)| *of != pid || (uid != 0 && *by != uid));
                set.len() != size
            };
            prop_assert_eq!(tags.generation() != before, changed);
            let now: BTreeSet<(u32, u32)> = tags
                .tags()
                .map(|(_, tag)| match tag.by { By::User(uid) => (uid, tag.mark.pid().unwrap()), _ => (9, 9) })
                .collect();
            prop_assert_eq!(&now, &set);
        }
    }
}
