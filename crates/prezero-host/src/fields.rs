//! The `name: value` lines of `/proc/meminfo`, `/proc/cpuinfo`, `/proc/self/status` and the like.

/// The value on the first line with this name.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then_some(value.trim())
    })
}

/// The first line with each of these names, in their order: what [`field`] needs of a longer text.
pub(crate) fn only(text: &str, names: &[&str]) -> String {
    names
        .iter()
        .filter_map(|name| Some(format!("{name}: {}\n", field(text, name)?)))
        .collect()
}

/// A value like `24684096 kB` in bytes.
pub(crate) fn kilobytes(value: &str) -> Option<u64> {
    let number = value.trim().strip_suffix("kB")?;
    number.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word that the kernel marks as chosen: `madvise` of `always [madvise] never`.
pub(crate) fn marked(text: &str, open: char, close: char) -> Option<&str> {
    let (_, rest) = text.split_once(open)?;
    let (word, _) = rest.split_once(close)?;
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_whole_names_only() {
        let text =
            "HugePages_Total:     512\nNode 0 MemTotal:  8 kB\nmodel\t\t: 1\nmodel name\t: A: B\n";
        assert_eq!(field(text, "HugePages_Total"), Some("512"));
        assert_eq!(field(text, "MemTotal"), None);
        assert_eq!(field(text, "Node 0 MemTotal"), Some("8 kB"));
        assert_eq!(field(text, "model"), Some("1"));
        assert_eq!(field(text, "model name"), Some("A: B"));
    }

    #[test]
    fn only_the_first_line_of_each_name_is_kept() {
        let text = "Name: secret\nMemFree:\t 8 kB\nMemTotal: 9 kB\nMemFree: 7 kB\n";
        let kept = only(text, &["MemTotal", "MemFree", "MemUsed"]);
        assert_eq!(kept, "MemTotal: 9 kB\nMemFree: 8 kB\n");
    }

    #[test]
    fn kilobytes_need_their_unit_and_must_fit() {
        assert_eq!(kilobytes("2048 kB"), Some(2 << 20));
        assert_eq!(kilobytes("2048"), None);
        assert_eq!(kilobytes("18446744073709551615 kB"), None);
    }

    #[test]
    fn finds_the_marked_word() {
        assert_eq!(
            marked("always [madvise] never\n", '[', ']'),
            Some("madvise")
        );
        assert_eq!(marked("none (full)", '[', ']'), None);
        assert_eq!(marked("] [", '[', ']'), None);
        assert_eq!(marked("[]", '[', ']'), None);
    }

    proptest! {
        #[test]
        fn any_text_can_be_searched(text in "[A-Z:() \n\\[\\]0-9kB]{0,80}|\\PC*", name in "\\PC{0,3}") {
            let _ = (field(&text, &name), kilobytes(&text), marked(&text, '[', ']'));
        }
    }
}
