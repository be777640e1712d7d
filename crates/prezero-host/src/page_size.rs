//! The size of a page, as a type.

use std::fmt;

/// The size of a page in bytes: a power of two, at least 4 KiB.
///
/// No list of sizes is built in. x86-64 offers 2 MiB and 1 GiB, arm64 and POWER others (64 KiB,
/// 32 MiB, 512 MiB, 16 GiB), and the host's own files say which there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u64);

impl PageSize {
    /// 4 KiB, the ordinary page of x86-64.
    pub const BASE: Self = Self(4 << 10);
    /// 2 MiB.
    pub const HUGE_2M: Self = Self(2 << 20);
    /// 1 GiB.
    pub const HUGE_1G: Self = Self(1 << 30);

    /// A page of `bytes` bytes, or `None` unless that is a power of two of at least 4096.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= Self::BASE.0 {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The base-2 logarithm of the size: 21 for 2 MiB.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// Whether `value`, an address or a length in bytes, is a multiple of the size.
    #[must_use]
    pub const fn is_aligned(self, value: u64) -> bool {
        value & (self.0 - 1) == 0
    }

    /// The largest multiple of the size that is not above `value`.
    #[must_use]
    pub const fn round_down(self, value: u64) -> u64 {
        value & !(self.0 - 1)
    }

    /// The smallest multiple of the size that is not below `value`, or `None` if it exceeds `u64`.
    #[must_use]
    pub const fn round_up(self, value: u64) -> Option<u64> {
        match value.checked_add(self.0 - 1) {
            Some(sum) => Some(self.round_down(sum)),
            None => None,
        }
    }
}

/// Writes the size in the largest unit that keeps it whole: `64 KiB`, `2 MiB`, `16 GiB`.
impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.shift() {
            ..20 => (10, "KiB"),
            20..30 => (20, "MiB"),
            30..40 => (30, "GiB"),
            _ => (40, "TiB"),
        };
        f.pad(&format!("{} {name}", self.0 >> unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_not_a_power_of_two_of_at_least_4_kib() {
        for bytes in [0, 1, 2048, 4095, 4097, 3 << 20, u64::MAX] {
            assert_eq!(PageSize::new(bytes), None, "{bytes}");
        }
        assert_eq!(PageSize::new(4096), Some(PageSize::BASE));
        assert_eq!(PageSize::new(1 << 63).map(PageSize::shift), Some(63));
    }

    #[test]
    fn prints_a_whole_number_of_the_largest_unit() {
        let shown = |bytes| PageSize::new(bytes).map(|size| size.to_string());
        assert_eq!(shown(4 << 10).as_deref(), Some("4 KiB"));
        assert_eq!(shown(512 << 10).as_deref(), Some("512 KiB"));
        assert_eq!(shown(2 << 20).as_deref(), Some("2 MiB"));
        assert_eq!(shown(1 << 30).as_deref(), Some("1 GiB"));
        assert_eq!(shown(16 << 30).as_deref(), Some("16 GiB"));
        assert_eq!(shown(1 << 40).as_deref(), Some("1 TiB"));
        assert_eq!(format!("{:>8}", PageSize::HUGE_2M), "   2 MiB");
    }

    #[test]
    fn rounding_up_past_the_last_multiple_is_none() {
        let last = PageSize::HUGE_1G.round_down(u64::MAX);
        assert_eq!(PageSize::HUGE_1G.round_up(last), Some(last));
        assert_eq!(PageSize::HUGE_1G.round_up(last + 1), None);
    }

    proptest! {
        #[test]
        fn rounding_agrees_with_division(shift in 12u32..40, value in 0..u64::MAX / 2) {
            let size = PageSize::new(1 << shift).unwrap();
            prop_assert_eq!(size.round_down(value), value / size.bytes() * size.bytes());
            prop_assert_eq!(size.round_up(value), Some(value.div_ceil(size.bytes()) * size.bytes()));
            prop_assert_eq!(size.is_aligned(value), value % size.bytes() == 0);
        }
    }
}
