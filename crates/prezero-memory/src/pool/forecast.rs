//! What could be locked, without locking it: for those who only want to know.

use super::status::{Segment, Status, Use};
use super::take::{TakeRequest, order};
use crate::plan::{Origin, Recycled};
use crate::size::PageBytes;

/// What [`Pool::lock`](super::Pool::lock) would find, request after request, as far as a [`Status`] tells.
#[derive(Clone, Debug)]
pub struct Forecast<'a> {
    status: &'a Status,
    /// Those that no request has had yet, in the order of taking.
    left: Vec<&'a Segment>,
}

/// What one request would find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// In the order in which they would be locked.
    pub segments: Vec<Recycled>,
    /// Segments that would be taken but are in use.
    pub busy: u64,
}

impl Foreseen {
    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|found| found.len.bytes()).sum()
    }
}

impl Status {
    /// What requests would find, one after the other. Others may take it first.
    #[must_use]
    pub fn forecast(&self) -> Forecast<'_> {
        let mut left: Vec<&Segment> = self.segments.iter().collect();
        left.sort_by_key(|segment| order(segment.name));
        Forecast { status: self, left }
    }
}

impl Forecast<'_> {
    /// What [`Pool::lock`](super::Pool::lock) would lock for this request, after those before it.
    pub fn lock(&mut self, request: &TakeRequest) -> Foreseen {
        let mut found = Foreseen::default();
        let mut left = request.max_bytes;
        let mut busy = Vec::new();
        let page = self.status.page_size;
        self.left.retain(|segment| {
            let bytes = segment.name.bytes;
            let len = PageBytes::new(bytes, page);
            let origin = segment.name.state.origin();
            let (Some(len), Some(origin)) = (len, origin) else {
                return true;
            };
            // Of a pool of exchange, dirty ones are nobody's.
            let barred = origin == Origin::Dirty && self.status.exchange_only;
            if barred || !request.wants(segment.node, segment.name) || bytes > left {
                return true;
            }
            if segment.usage != Use::Free {
                busy.push(bytes);
                return true;
            }
            left -= bytes;
            found.segments.push(Recycled {
                len,
                node: segment.node,
                origin,
            });
            false
        });
        // Those that no longer fit would not have been taken.
        busy.retain(|bytes| *bytes <= left);
        found.busy = busy.len() as u64;
        found
    }
}

#[cfg(test)]
mod tests {
    use prezero_host::PageSize;

    use super::super::name::State;
    use super::*;

    const PAGE: u64 = 2 << 20;

    fn segment(node: u32, pages: u64, state: State, free: bool) -> Segment {
        let name = format!("{}-{:016x}.{}", pages * PAGE, pages, state.name());
        Segment {
            node,
            name: name.parse().expect("a name"),
            path: name.into(),
            usage: match free {
                true => Use::Free,
                false => Use::Leased {
                    holders: Vec::new(),
                },
            },
        }
    }

    fn status(segments: Vec<Segment>) -> Status {
        Status {
            path: "/pool".into(),
            page_size: PageSize::HUGE_2M,
            exchange_only: false,
            segments,
            totals: Vec::new(),
            problems: Vec::new(),
        }
    }

    fn pages(found: &Foreseen) -> Vec<(u64, Origin)> {
        let segments = found.segments.iter();
        segments
            .map(|found| (found.len.pages(), found.origin))
            .collect()
    }

    #[test]
    fn clean_segments_come_first_then_the_largest_and_none_twice() {
        let status = status(vec![
            segment(0, 8, State::Dirty, true),
            segment(0, 2, State::Clean, true),
            segment(0, 4, State::Clean, true),
            segment(0, 16, State::Retired, true),
        ]);
        let mut forecast = status.forecast();
        let request = |pages: u64| TakeRequest {
            max_bytes: pages * PAGE,
            ..TakeRequest::default()
        };
        let (clean, dirty) = (Origin::Clean, Origin::Dirty);
        assert_eq!(pages(&forecast.lock(&request(5))), [(4, clean)]);
        let rest = forecast.lock(&request(99));
        assert_eq!(pages(&rest), [(2, clean), (8, dirty)]);
        assert_eq!(forecast.lock(&request(99)), Foreseen::default());
    }

    #[test]
    fn dirty_segments_of_a_pool_of_exchange_are_not_counted_on() {
        let segments = vec![
            segment(0, 2, State::Dirty, true),
            segment(0, 4, State::Clean, true),
        ];
        let status = Status {
            exchange_only: true,
            ..status(segments)
        };
        let found = status.forecast().lock(&TakeRequest {
            max_bytes: 9 * PAGE,
            ..TakeRequest::default()
        });
        assert_eq!(pages(&found), [(4, Origin::Clean)]);
    }

    #[test]
    fn segments_in_use_and_of_other_nodes_are_not_counted_on() {
        let status = status(vec![
            segment(1, 4, State::Clean, true),
            segment(0, 4, State::Clean, false),
            segment(0, 2, State::Dirty, true),
        ]);
        let mut forecast = status.forecast();
        let found = forecast.lock(&TakeRequest {
            node: Some(0),
            max_bytes: 6 * PAGE,
            exact: None,
        });
        assert_eq!(pages(&found), [(2, Origin::Dirty)]);
        assert_eq!(found.busy, 1);
    }
}
