//! Work in, counts out: what the host and each vCPU of the probe guest tell each other in memory.
//!
//! The RAM is cut into as many nearly equal shares as there are vCPUs; a share is one or more *pieces*, since it may
//! reach from one RAM range into the next. A mailbox is eight 64-bit words, one cache line; behind the mailboxes are
//! all pieces, in order.

use crate::slots::PAGE;

/// Bytes of a mailbox.
pub(crate) const MAILBOX_BYTES: u64 = 64;
/// Bytes of a piece: address and length.
const PIECE_BYTES: u64 = 16;

/// Offset of the guest address of this vCPU's first piece.
pub(crate) const PIECES: u64 = 0;
/// Offset of the number of its pieces.
pub(crate) const PIECE_COUNT: u64 = 8;
/// Offset, written by the guest, of the bytes scanned.
pub(crate) const SCANNED: u64 = 16;
/// Offset, written by the guest, of the number of non-zero bytes.
pub(crate) const NONZERO: u64 = 24;
/// Offset, written by the guest, of the first non-zero byte's address; all ones where there is none.
pub(crate) const FIRST: u64 = 32;

/// A run of guest memory for one vCPU, in bytes, multiples of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) gpa: u64,
    pub(crate) len: u64,
}

/// Cuts `ram` into `cpus` shares whose sizes differ by at most one 4 KiB page, in the order of the ranges.
pub(crate) fn split(ram: &[(u64, u64)], cpus: u32) -> Vec<Vec<Piece>> {
    let pages: u64 = ram.iter().map(|&(_, len)| len / PAGE).sum();
    let mut ranges = ram.iter().map(|&(gpa, len)| Piece { gpa, len });
    let mut rest = Piece { gpa: 0, len: 0 };
    (0..cpus)
        .map(|cpu| {
            // The first `pages % cpus` shares have one page more.
            let mut want = (pages / u64::from(cpus)
                + u64::from(u64::from(cpu) < pages % u64::from(cpus)))
                * PAGE;
            let mut share = Vec::new();
            while want > 0 {
                if rest.len == 0 {
                    let Some(next) = ranges.next() else { break };
                    rest = next;
                    continue;
                }
                let len = want.min(rest.len);
                share.push(Piece { gpa: rest.gpa, len });
                rest = Piece {
                    gpa: rest.gpa + len,
                    len: rest.len - len,
                };
                want -= len;
            }
            share
        })
        .collect()
}

/// The mailboxes and pieces of all vCPUs, as they are in guest memory from guest address `base` on.
pub(crate) fn encode(base: u64, shares: &[Vec<Piece>]) -> Vec<u8> {
    let mut next_piece = base + MAILBOX_BYTES * shares.len() as u64;
    let mut words = Vec::new();
    for share in shares {
        words.extend([next_piece, share.len() as u64, 0, 0, u64::MAX, 0, 0, 0]);
        next_piece += PIECE_BYTES * share.len() as u64;
    }
    words.extend(
        shares
            .iter()
            .flatten()
            .flat_map(|piece| [piece.gpa, piece.len]),
    );
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_reaches_over_the_hole() {
        let ram = [(0, 3 * PAGE), (1 << 32, 2 * PAGE)];
        let piece = |gpa, pages| Piece {
            gpa,
            len: pages * PAGE,
        };
        assert_eq!(split(&ram, 1), [vec![piece(0, 3), piece(1 << 32, 2)]]);
        assert_eq!(split(&ram, 2), [vec![piece(0, 3)], vec![piece(1 << 32, 2)]]);
        assert_eq!(
            split(&ram, 3),
            [
                vec![piece(0, 2)],
                vec![piece(2 * PAGE, 1), piece(1 << 32, 1)],
                vec![piece((1 << 32) + PAGE, 1)]
            ]
        );
    }

    #[test]
    fn more_vcpus_than_pages_leaves_some_without_work() {
        let shares = split(&[(0, 2 * PAGE)], 5);
        assert_eq!(
            shares.iter().map(Vec::len).collect::<Vec<_>>(),
            [1, 1, 0, 0, 0]
        );
    }

    #[test]
    fn mailboxes_point_to_their_own_pieces() {
        let bytes = encode(0x1000, &split(&[(0, 3 * PAGE), (1 << 32, 2 * PAGE)], 3));
        let word = |at: u64| {
            let at = usize::try_from(at).unwrap();
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        for (cpu, first_piece, count, gpa) in [
            (0, 0, 1, 0),
            (1, 1, 2, 2 * PAGE),
            (2, 3, 1, (1 << 32) + PAGE),
        ] {
            let mailbox = cpu * MAILBOX_BYTES;
            assert_eq!(
                word(mailbox + PIECES),
                0x1000 + 3 * MAILBOX_BYTES + first_piece * PIECE_BYTES
            );
            assert_eq!(word(mailbox + PIECE_COUNT), count);
            assert_eq!(word(word(mailbox + PIECES) - 0x1000), gpa);
        }
    }

    proptest! {
        #[test]
        fn shares_are_equal_and_cover_everything_once(
            pages in proptest::collection::vec(1u64..5000, 1..6), cpus in 1u32..40,
        ) {
            let ram: Vec<_> = (0u64..).zip(&pages).map(|(i, n)| (i << 32, n * PAGE)).collect();
            let shares = split(&ram, cpus);
            let sizes: Vec<u64> = shares.iter().map(|s| s.iter().map(|p| p.len).sum()).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= PAGE);
            // Joining neighbours gives the ranges back, so nothing is missing and nothing is twice.
            let mut joined: Vec<(u64, u64)> = Vec::new();
            for piece in shares.concat() {
                match joined.last_mut() {
                    Some(last) if last.0 + last.1 == piece.gpa => last.1 += piece.len,
                    _ => joined.push((piece.gpa, piece.len)),
                }
            }
            prop_assert_eq!(joined, ram);
        }
    }
}
