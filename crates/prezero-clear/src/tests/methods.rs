//! Names and what they stand for.

use std::collections::BTreeSet;

use crate::{Method, MethodError, Stores};

#[test]
fn every_available_method_is_found_by_its_name_in_the_order_of_names() {
    let available: Vec<Method> = Method::available().collect();
    let mut names = Method::NAMES.iter();
    for method in &available {
        assert!(
            names.any(|name| *name == method.name()),
            "{method} is out of order"
        );
        assert_eq!(method.name().parse::<Method>(), Ok(*method));
        assert_eq!(method.to_string(), method.name());
    }
    for name in ["cached", "portable"] {
        assert!(available.iter().any(|method| method.name() == name));
    }
    assert_eq!(
        available
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len(),
        available.len()
    );
}

#[test]
fn a_name_that_is_none_is_answered_with_those_that_are() {
    for name in ["", "stosb", "Clzero", "clzero "] {
        let error = Method::named(name).expect_err("no such method");
        assert_eq!(
            error,
            MethodError::Unknown {
                name: name.to_owned()
            }
        );
        for known in Method::NAMES {
            assert!(error.to_string().contains(known), "{error}");
        }
    }
}

#[test]
fn a_method_that_this_cpu_lacks_is_answered_with_what_it_needs() {
    let available: BTreeSet<&str> = Method::available().map(Method::name).collect();
    for name in Method::NAMES
        .iter()
        .filter(|name| !available.contains(*name))
    {
        let error = Method::named(name).expect_err("lacking");
        assert_eq!(
            error,
            MethodError::Unavailable {
                name: (*name).to_owned()
            }
        );
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("CPU"), "{text}");
    }
    let error = MethodError::Unavailable {
        name: "clzero".to_owned(),
    };
    assert!(error.to_string().contains("CPUID flag CLZERO"), "{error}");
}

#[test]
fn only_stores_around_the_caches_are_called_uncached() {
    for method in Method::available() {
        let cached = matches!(method.name(), "rep-stosb" | "cached" | "portable");
        assert_eq!(method.stores() == Stores::Cached, cached, "{method}");
    }
}

/// /proc/cpuinfo shows the same CPUID bits, without those that the kernel was told to do without (clearcpuid=).
#[cfg(target_arch = "x86_64")]
#[test]
fn what_the_kernel_detects_is_available() {
    let info = std::fs::read_to_string("/proc/cpuinfo").expect("Linux");
    let flags = info
        .lines()
        .find(|line| line.starts_with("flags"))
        .expect("flags");
    let flags: BTreeSet<&str> = flags.split_whitespace().collect();
    for (name, flag) in [
        ("avx2-nt", "avx2"),
        ("avx512-nt", "avx512f"),
        ("movdir64b", "movdir64b"),
        ("clzero", "clzero"),
    ] {
        assert!(
            Method::named(name).is_ok() || !flags.contains(flag),
            "{name}"
        );
    }
    assert!(Method::named("rep-stosb").is_ok() && Method::named("movnti").is_ok());
}
