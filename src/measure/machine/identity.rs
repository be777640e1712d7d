//! Whether two documents are of one machine, without saying which: machine-id(5) is to be kept
//! confidential, and only what a keyed hash makes of it may be shown.

use sha2::{Digest, Sha256};

/// So many digits tell all machines of a fleet apart.
const BYTES: usize = 8;

/// A hash of `id` for this program and this purpose alone; `None` where there is no id, or none yet
/// (`uninitialized` during a first boot).
pub(super) fn hashed(purpose: &str, id: Option<String>) -> Option<String> {
    let id = id.filter(|id| id != "uninitialized")?;
    let mut hash = Sha256::new();
    // The lengths of key and id are fixed, so that nothing can be added behind them.
    hash.update(format!("prezero bench, identity of a {purpose}\0{id}"));
    let digits = hash.finalize().into_iter().take(BYTES);
    Some(digits.map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3d1219c7c4c5404aaa1f6d2a48adfda4";

    #[test]
    fn a_hash_is_the_same_each_time_and_does_not_show_the_id() {
        let hash = hashed("machine", Some(ID.to_owned())).expect("an id");
        // printf 'prezero bench, identity of a machine\0%s' ID | sha256sum | head -c 16
        assert_eq!(hash, "4a9f3f9e36d691f8");
        assert!(!ID.contains(&hash[..8]));
    }

    #[test]
    fn the_same_id_means_nothing_for_another_purpose() {
        let of = |purpose| hashed(purpose, Some(ID.to_owned()));
        assert_ne!(of("machine"), of("boot"));
        assert_eq!(hashed("machine", None), None);
        assert_eq!(hashed("machine", Some("uninitialized".to_owned())), None);
    }
}
