//! What the helper of a dead monitor may keep of a segment: a pinned page, which no check sees.

use prezero_memory::pool::{Pool, ScrubRequest, State};

use crate::fixture::{Fixture, SEGMENT, View, counts, scrub_as, stain, take_only};

/// A page that somebody still reaches through a pipe, after descriptor and mapping are gone.
#[derive(Debug)]
pub(crate) struct Pin {
    pipe: std::io::PipeReader,
}

impl Pin {
    /// vmsplice(2) of the first bytes of the first page.
    #[track_caller]
    pub(crate) fn on(view: &View) -> Self {
        let (pipe, end) = std::io::pipe().expect("a pipe");
        view.splice_into(&end);
        Self { pipe }
    }

    /// What is there now.
    #[track_caller]
    pub(crate) fn sees(self) -> u8 {
        let mut byte = [0];
        std::io::Read::read_exact(&mut { self.pipe }, &mut byte).expect("a spliced page");
        byte[0]
    }
}

/// What somebody with a pin on a released segment sees after the next owner has written 0x5a.
#[track_caller]
pub(crate) fn seen_by_a_pin(fixture: &Fixture, pool: &Pool, exchange: bool) -> u8 {
    let lease = take_only(pool);
    stain(&lease);
    let pin = Pin::on(&View::of(lease.file(), SEGMENT));
    drop(lease);
    // No check sees it.
    assert_eq!(counts(pool), [0, 1, 0, 0, 0]);
    let request = ScrubRequest {
        exchange,
        ..ScrubRequest::default()
    };
    let report = scrub_as(pool, &request);
    assert_eq!((report.segments, report.left.len()), (1, 0), "{report:?}");
    let lease = take_only(pool);
    let view = View::of(lease.file(), SEGMENT);
    assert_eq!(view.stained(), 0);
    view.fill(0x5a);
    drop((view, lease));
    assert!(fixture.only(State::Dirty).exists());
    pin.sees()
}

#[test]
fn exchanged_pages_are_out_of_reach_of_a_pin() {
    let Some(fixture) = Fixture::new(3) else {
        return;
    };
    let pool = fixture.pool(1);
    assert_eq!(seen_by_a_pin(&fixture, &pool, true), 0xa5);
    // Which is why there are exchanges.
    assert_eq!(seen_by_a_pin(&fixture, &pool, false), 0x5a);
}
