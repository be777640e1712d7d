//! Text from elsewhere, on its way to a terminal.

/// The text without what a terminal would obey: whoever wrote it may not move the cursor, or clear the screen.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_left_out() {
        assert_eq!(printable("a\x1b[2J\u{9b}1m\r\nü"), "a[2J1mü");
    }
}
