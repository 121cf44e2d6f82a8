//! Ranks that join over a socket, and a host's treatment of peers that are not ranks.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;
use trimtab_team::segment::socket::Host;
use trimtab_team::{Error, Operator, Options, Team};

fn folder(name: &str, mode: u32) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("trimtab-meeting-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    folder
}

#[test]
fn ranks_join_despite_silent_and_malformed_peers() {
    let folder = folder("good", 0o700);
    let path = folder.join("team");
    // Left by a host that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let team = Team::new(Options::new(3)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let team = &team;
            team.host(&path).unwrap();
            let rank = team.join(Some(0)).unwrap();
            let mut sum = [1_u32];
            rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
            assert_eq!(sum, [3]);
        });
        let silent = loop {
            if let Ok(stream) = UnixStream::connect(&path) {
                break stream;
            }
        };
        for _ in 0..50 {
            let _ = UnixStream::connect(&path).and_then(|mut stream| stream.write_all(&[7; 4096]));
        }
        for wanted in [None, Some(2)] {
            let path = &path;
            scope.spawn(move || {
                let (team, number) = Team::meet(path, wanted, Options::new(1)).unwrap();
                let rank = team.join(Some(number)).unwrap();
                let mut sum = [1_u32];
                rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
                assert_eq!(sum, [3]);
            });
        }
        drop(silent);
    });
    assert!(!path.exists());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_of_others_and_second_hosts_are_refused() {
    let open = folder("open", 0o755);
    assert!(matches!(Host::listen(&open.join("team")), Err(Error::Refused(_))));
    let link = open.join("link");
    let good = folder("second", 0o700);
    std::os::unix::fs::symlink(&good, &link).unwrap();
    assert!(matches!(Host::listen(&link.join("team")), Err(Error::Refused(_))));
    let host = Host::listen(&good.join("team")).unwrap();
    assert!(matches!(Host::listen(&good.join("team")), Err(Error::Refused(_))));
    drop(host);
    let soon = Options { gather: Duration::from_millis(50), ..Options::new(2) };
    assert!(matches!(Team::meet(&good.join("team"), None, soon), Err(Error::Refused(_))));
    assert!(matches!(Team::new(soon).unwrap().host(&good.join("team")), Err(Error::Refused(_))));
    std::fs::remove_dir_all(open).unwrap();
    std::fs::remove_dir_all(good).unwrap();
}

#[test]
fn ranks_of_a_job_find_each_other_by_its_name() {
    let key = format!("test/../{}", std::process::id());
    std::thread::scope(|scope| {
        for number in 0..3 {
            let key = &key;
            scope.spawn(move || {
                let team = Team::of_job(number, key, Options::new(3)).unwrap();
                let rank = team.join(Some(number)).unwrap();
                let mut sum = [1_u32];
                rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
                assert_eq!(sum, [3]);
            });
        }
    });
}
