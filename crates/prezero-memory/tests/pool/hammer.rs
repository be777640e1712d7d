//! Never leased twice: processes that take, stamp, check and release, beside others that scrub and drain.

use std::time::{Duration, Instant};

use prezero_memory::pool::{Pool, PoolError, ScrubRequest};
use prezero_memory::{Control, Host, Origin};

use crate::children::{Process, pool_dir, say};
use crate::fixture::{Fixture, SEGMENT, View, assert_clean_is_zero, counts, scrub, take, up_to};

fn seconds(dir: &std::path::Path) -> Duration {
    // hugetlbfs has neither contents nor links for small things.
    let long = dir.with_extension("long").exists();
    Duration::from_secs(if long { 30 } else { 2 })
}

#[test]
#[ignore = "the part of another process"]
fn child_takes() {
    let Some(dir) = pool_dir() else { return };
    let pool = Pool::open(&dir).expect("a pool");
    let (start, me) = (Instant::now(), u64::from(std::process::id()));
    let (mut leases, mut turn) = (0_u64, 0_u64);
    while start.elapsed() < seconds(&dir) {
        turn += 1;
        let found = pool
            .lock(&up_to(SEGMENT * (1 + turn % 3)))
            .expect("readable");
        // Every third time it is given up again.
        if turn.is_multiple_of(3) {
            continue;
        }
        for locked in found.locked {
            let lease = match locked.lease() {
                Ok(lease) => lease,
                Err(PoolError::Io { .. }) => panic!("somebody renamed a locked segment"),
                Err(error) => panic!("{error}"),
            };
            let view = View::of(lease.file(), SEGMENT);
            let words = usize::try_from(SEGMENT / 8).expect("64 bits");
            let places = [0, words / 3, words / 2, words - 1];
            let clean = lease.origin() == Origin::Clean;
            for place in places {
                assert!(
                    !clean || view.read(place) == 0,
                    "{:?} is not clean",
                    lease.name()
                );
                view.write(place, me << 32 | turn);
            }
            std::thread::sleep(Duration::from_micros(turn * 97 % 900));
            for place in places {
                assert_eq!(view.read(place), me << 32 | turn, "{:?}", lease.name());
            }
            leases += 1;
        }
    }
    say(&leases.to_string());
}

#[test]
#[ignore = "the part of another process"]
fn child_scrubs_again_and_again() {
    let Some(dir) = pool_dir() else { return };
    let pool = Pool::open(&dir).expect("a pool");
    let (start, host) = (Instant::now(), Host::probe());
    let mut scrubbed = 0;
    while start.elapsed() < seconds(&dir) {
        let request = ScrubRequest {
            threads: Some(1),
            exchange: scrubbed % 2 == 1,
            ..ScrubRequest::default()
        };
        scrubbed += pool
            .scrub(&host, &request, &Control::default())
            .expect("no error")
            .segments;
    }
    say(&scrubbed.to_string());
}

fn hammer(segments: u64, long: bool) {
    // To spare for both scrubbers' exchanges, twice, because the kernel gives pages back a little late: how a
    // segment is lost to another one's exchange is not what is tested here.
    let Some(fixture) = Fixture::new(segments * 2 + 8) else {
        return;
    };
    let pool = fixture.pool(segments);
    if long {
        std::fs::write(fixture.dir().with_extension("long"), "").expect("an empty file");
    }
    let start = |name: &str| Process::start(name, &fixture.dir());
    let mut takers: Vec<Process> = (0..4).map(|_| start("hammer::child_takes")).collect();
    let mut scrubbers: Vec<Process> = (0..2)
        .map(|_| start("hammer::child_scrubs_again_and_again"))
        .collect();
    let sum = |processes: &mut Vec<Process>| -> u64 {
        let said = processes.iter_mut().map(|process| process.hear());
        said.map(|n| n.parse::<u64>().expect("a number")).sum()
    };
    let (leases, scrubbed) = (sum(&mut takers), sum(&mut scrubbers));
    takers.into_iter().chain(scrubbers).for_each(Process::join);
    assert!(
        leases > segments && scrubbed > 0,
        "{leases} leases, {scrubbed} scrubbed"
    );
    let [clean, dirty, leased, retired, incomplete] = counts(&pool);
    assert_eq!(
        (clean + dirty, leased, retired, incomplete),
        (segments, 0, 0, 0),
        "{:?}",
        fixture.names()
    );
    scrub(&pool);
    assert_clean_is_zero(&pool);
    assert_eq!(take(&pool, u64::MAX).len() as u64, segments);
}

#[test]
fn nothing_is_leased_twice() {
    hammer(6, false);
}

mod slow {
    #[test]
    #[ignore = "slow"]
    fn nothing_is_leased_twice_in_half_a_minute() {
        super::hammer(6, true);
    }
}
