//! `poison FILE OFFSET`: a hardware error, in the kernel's eyes, in the page at this offset in bytes of a file on
//! hugetlbfs. For the lab: the page stays unusable until the machine is booted again. Needs `CAP_SYS_ADMIN` and a
//! kernel with `CONFIG_MEMORY_FAILURE`.

use std::process::ExitCode;

use prezero_testkit::poison_page;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, offset] = &*args else {
        eprintln!("usage: poison FILE OFFSET");
        return ExitCode::from(2);
    };
    let Ok(offset) = offset.parse() else {
        eprintln!("{offset} is not a number of bytes");
        return ExitCode::from(2);
    };
    match poison_page(file.as_ref(), offset) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::FAILURE
        }
    }
}
