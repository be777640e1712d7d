//! Sizes: byte counts for people, and byte counts that are whole pages by construction.

use std::fmt;

use prezero_host::PageSize;

const KIB: u64 = 1 << 10;
const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", KIB),
];

/// A byte count that displays in the largest binary unit that divides it: `16 GiB`, `1536 MiB`.
///
/// The display loses nothing, so a number in a message can be typed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS
            .iter()
            .find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit));
        match unit {
            Some((name, unit)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl ByteSize {
    /// The form that the command line takes: `16G`, `1536M`, or bytes.
    #[must_use]
    pub fn to_spec(self) -> String {
        let unit = UNITS
            .iter()
            .find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit));
        match unit {
            Some((name, unit)) => format!("{}{}", self.0 / unit, &name[..1]),
            None => self.0.to_string(),
        }
    }
}

/// A byte count that is a multiple of a page size by construction.
///
/// Every length that reaches `mmap`, `munmap` or `ftruncate` on hugepages is one of these, so that
/// none of them can fail with `EINVAL` for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageBytes {
    bytes: u64,
    page_size: PageSize,
}

impl PageBytes {
    /// `bytes` as whole pages, or `None` if they are not.
    #[must_use]
    pub fn new(bytes: u64, page_size: PageSize) -> Option<Self> {
        page_size
            .is_aligned(bytes)
            .then_some(Self { bytes, page_size })
    }

    /// `pages` pages, or `None` on overflow.
    #[must_use]
    pub fn from_pages(pages: u64, page_size: PageSize) -> Option<Self> {
        let bytes = pages.checked_mul(page_size.bytes())?;
        Some(Self { bytes, page_size })
    }

    /// The count in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// The count in pages.
    #[must_use]
    pub fn pages(self) -> u64 {
        self.bytes >> self.page_size.shift()
    }

    /// The page size it is a multiple of.
    #[must_use]
    pub fn page_size(self) -> PageSize {
        self.page_size
    }
}

impl fmt::Display for PageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.bytes).fmt(f)
    }
}

/// Why a size was refused. The text names the nearest sizes that would be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Nothing, or not digits followed by a unit.
    #[error("'{0}' is not a number of bytes with an optional unit K, M, G or T")]
    Malformed(String),
    /// A sign before the digits.
    #[error("'{0}' has a sign")]
    Sign(String),
    /// A fraction; `near` are the nearest whole sizes.
    #[error("'{text}' is a fraction; {near} would be whole")]
    Fraction {
        /// The text as given.
        text: String,
        /// Nearest sizes, as they are typed.
        near: String,
    },
    /// More than 2^64 − 1 bytes.
    #[error("'{0}' does not fit in 64 bits; the largest is 16777215T")]
    Overflow(String),
    /// No bytes at all.
    #[error("'{0}' is zero; the smallest is one page, such as 2M")]
    Zero(String),
}

/// Reads a size: bytes, or K/M/G/T, KB/MB/GB/TB, KiB/MiB/GiB/TiB in any case, always powers of 1024.
///
/// # Errors
///
/// Signs, fractions, overflow and zero are refused, with the nearest sizes that would be taken.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    if text.starts_with(['-', '+']) {
        return Err(SizeError::Sign(text.to_owned()));
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(malformed()),
    };
    if let Some((whole, fraction)) = number.split_once('.') {
        return Err(refuse_fraction(text, whole, fraction, unit).unwrap_or_else(malformed));
    }
    if number.is_empty() {
        return Err(malformed());
    }
    let overflow = || SizeError::Overflow(text.to_owned());
    let count: u64 = number.parse().map_err(|_| overflow())?;
    match count.checked_mul(unit).ok_or_else(overflow)? {
        0 => Err(SizeError::Zero(text.to_owned())),
        bytes => Ok(bytes),
    }
}

/// The error for `whole.fraction` units, or `None` if that is no number either.
fn refuse_fraction(text: &str, whole: &str, fraction: &str, unit: u64) -> Option<SizeError> {
    let digits: String = fraction.chars().take(9).collect();
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let part: u64 = digits.parse().ok()?;
    let scale = 10_u64.pow(u32::try_from(digits.len()).ok()?);
    let bytes = u128::from(whole) * u128::from(unit)
        + u128::from(part) * u128::from(unit) / u128::from(scale);
    let bytes = u64::try_from(bytes).ok()?;
    let step: u64 = if unit > KIB { 1 << 20 } else { KIB };
    let below = ByteSize(bytes - bytes % step);
    let above = ByteSize(below.0.checked_add(step)?);
    let near = match bytes % step {
        0 => below.to_spec(),
        _ if below.0 == 0 => above.to_spec(),
        _ => format!("{} and {}", below.to_spec(), above.to_spec()),
    };
    Some(SizeError::Fraction {
        text: text.to_owned(),
        near,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_in_any_case() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1k", 1024),
            ("1KB", 1024),
            ("64M", 64 << 20),
            ("64mib", 64 << 20),
            ("16G", 16 << 30),
            ("16gb", 16 << 30),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_sign_fraction_overflow_zero_and_noise() {
        assert!(matches!(parse_size("-1"), Err(SizeError::Sign(_))));
        assert!(matches!(parse_size("+1G"), Err(SizeError::Sign(_))));
        assert!(matches!(parse_size("0"), Err(SizeError::Zero(_))));
        assert!(matches!(parse_size("0G"), Err(SizeError::Zero(_))));
        for text in ["18446744073709551616", "16777216T", "99999999999999999999G"] {
            assert!(
                matches!(parse_size(text), Err(SizeError::Overflow(_))),
                "{text}"
            );
        }
        for text in [
            "", "G", "1X", "1GG", "1 G", "0x10", "1.", ".", "1.x", "1e3", "１G",
        ] {
            assert!(
                matches!(parse_size(text), Err(SizeError::Malformed(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_fraction_is_answered_with_the_nearest_whole_sizes() {
        let near = |text: &str| match parse_size(text) {
            Err(SizeError::Fraction { near, .. }) => near,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(near("1.5G"), "1536M");
        assert_eq!(near(".5G"), "512M");
        assert_eq!(near("1.0001G"), "1G and 1025M");
        assert_eq!(near("0.1M"), "1M");
    }

    #[test]
    fn what_is_displayed_can_be_typed_back() {
        for bytes in [
            1,
            4096,
            19 << 20,
            1536 << 20,
            16 << 30,
            1550 << 30,
            16 << 40,
        ] {
            assert_eq!(parse_size(&ByteSize(bytes).to_spec()), Ok(bytes));
        }
        assert_eq!(ByteSize(1536 << 20).to_string(), "1536 MiB");
        assert_eq!(ByteSize(0).to_string(), "0 bytes");
    }

    #[test]
    fn page_bytes_are_whole_pages() {
        assert_eq!(PageBytes::new(3 << 20, PageSize::HUGE_2M), None);
        let four = PageBytes::new(4 << 20, PageSize::HUGE_2M).unwrap();
        assert_eq!((four.pages(), four.bytes()), (2, 4 << 20));
        assert_eq!(PageBytes::from_pages(u64::MAX, PageSize::HUGE_2M), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_size_or_a_refusal(text in "\\PC{0,24}") {
            let _ = parse_size(&text);
        }
    }
}
