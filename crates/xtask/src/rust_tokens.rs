//! Just enough of Rust's syntax to tell code from comments and literals.

/// The lines, counted from 1, on which `word` stands in the code of `source`.
pub(crate) fn lines_with(source: &str, word: &str) -> Vec<usize> {
    let code = code_only(source);
    let lines = code.lines().zip(1..);
    let has = |line: &str| line.split(|c: char| !is_word(c)).any(|found| found == word);
    lines
        .filter(|(line, _)| has(line))
        .map(|(_, number)| number)
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `source` with comments and literals left out, and all its line breaks.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = comment(rest).or_else(|| {
            // A prefix belongs to a literal only where no longer word ends in it.
            let starts_word = !code.ends_with(is_word);
            raw_string(rest)
                .filter(|_| starts_word)
                .or_else(|| quoted(rest))
        });
        match skipped {
            Some(len) => {
                let breaks = rest[..len].matches('\n').count();
                // The space keeps the words on both sides apart.
                code.push(' ');
                code.extend(std::iter::repeat_n('\n', breaks));
                rest = &rest[len..];
            }
            None => {
                code.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    code
}

/// The length of the comment that `text` starts with; block comments nest.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let mut at = text.strip_prefix("/*").map(|_| 2)?;
    let mut depth = 1;
    while depth > 0 {
        let rest = &text[at..];
        let Some(next) = rest.find("*/") else {
            return Some(text.len());
        };
        match rest[..next].find("/*") {
            Some(inner) => {
                depth += 1;
                at += inner + 2;
            }
            None => {
                depth -= 1;
                at += next + 2;
            }
        }
    }
    Some(at)
}

/// The length of the raw string (`r"…"`, `br#"…"#`, `cr"…"`) that `text` starts with.
fn raw_string(text: &str) -> Option<usize> {
    let after_prefix = text
        .strip_prefix(['b', 'c'])
        .unwrap_or(text)
        .strip_prefix('r')?;
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    let body = after_prefix[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let body_len = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(text.len() - body.len() + body_len)
}

/// The length of the string or character literal that `text` starts with; a lifetime is none.
fn quoted(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    if quote == '\'' {
        let mut chars = text.chars().skip(1);
        if chars.next()? != '\\' && chars.next()? != '\'' {
            return None;
        }
    }
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<usize> {
        lines_with(source, "unsafe")
    }

    #[test]
    fn finds_blocks_functions_and_impls() {
        assert_eq!(
            found("unsafe { a() }\nunsafe fn b() {}\n\nunsafe impl Send for C {}"),
            [1, 2, 4]
        );
        assert_eq!(found("let a=unsafe{b()};#[unsafe(no_mangle)]"), [1]);
    }

    #[test]
    fn longer_words_are_other_words() {
        assert_eq!(
            found("#![deny(unsafe_code, not_unsafe)]\nfn unsafely() {}"),
            [0; 0]
        );
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        for source in [
            "// unsafe { }",
            "//! unsafe",
            "/* unsafe /* nested */ unsafe */",
            r#"let a = "unsafe \" unsafe";"#,
            r##"let a = r#"" unsafe "#;"##,
            r##"let a = br"unsafe \";"##,
            "let a = 'a'; // unsafe",
            r"let a = '\''; /* unsafe */",
            "\"multiple\nunsafe\nlines\"",
        ] {
            assert_eq!(found(source), [0; 0], "{source}");
        }
    }

    #[test]
    fn code_after_comments_and_literals_is_code() {
        for source in [
            "/* a */ unsafe {}",
            "let a = '\"'; unsafe {}",
            r"let a = '\\'; unsafe {}",
            r#"let a = "\\"; unsafe {}"#,
            r##"let a = r#"""#; unsafe {}"##,
            "fn a<'a>(b: &'a str) { unsafe {} }",
            "let ptr\"\";unsafe {}",
        ] {
            assert_eq!(found(source), [1], "{source}");
        }
        assert_eq!(found("/* 1\n2\n3 */ \"4\n5\"\nunsafe {}"), [5]);
    }
}
