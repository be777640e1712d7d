//! The text of every refusal of a SPEC, its cause, and what it advises to type.

use std::error::Error;

use prezero_memory::MemorySpec;

/// Message, cause and advice.
fn refusal(spec: &str) -> (String, Option<String>, String) {
    let error = spec.parse::<MemorySpec>().unwrap_err();
    let cause = error.source().map(ToString::to_string);
    (error.to_string(), cause, error.fix().unwrap())
}

fn text(message: &str, fix: &str) -> (String, Option<String>, String) {
    (message.to_owned(), None, fix.to_owned())
}

fn caused(message: &str, cause: &str, fix: &str) -> (String, Option<String>, String) {
    (message.to_owned(), Some(cause.to_owned()), fix.to_owned())
}

#[test]
fn a_size_that_is_no_size() {
    let some_size = "size=16G, size=512M or a number of bytes";
    for (spec, cause, fix) in [
        (
            "lots",
            "'lots' is not a number of bytes with an optional unit K, M, G or T",
            some_size,
        ),
        ("-1G", "'-1G' has a sign", some_size),
        (
            "1.5G",
            "'1.5G' is a fraction; 1536M would be whole",
            "size=1536M",
        ),
        (
            "1.0001G",
            "'1.0001G' is a fraction; 1G and 1025M would be whole",
            "size=1G",
        ),
        (
            "16777216T",
            "'16777216T' does not fit in 64 bits; the largest is 16777215T",
            some_size,
        ),
        (
            "0G",
            "'0G' is zero; the smallest is one page, such as 2M",
            some_size,
        ),
    ] {
        let message = format!("The size of memory '{spec}' is refused");
        assert_eq!(refusal(spec), caused(&message, cause, fix));
    }
    assert_eq!(
        refusal("1G,hugepage_size=huge"),
        caused(
            "The hugepage_size of memory '1G,hugepage_size=huge' is refused",
            "'huge' is not a number of bytes with an optional unit K, M, G or T",
            "hugepage_size=2M or hugepage_size=1G",
        )
    );
}

#[test]
fn no_size() {
    assert_eq!(
        refusal("hugepages=on"),
        text("Memory 'hugepages=on' has no size", "add size=16G")
    );
}

#[test]
fn an_unknown_key() {
    assert_eq!(
        refusal("1G,shared=on"),
        text(
            "Memory '1G,shared=on' has an unknown key 'shared'",
            "the keys are size, id, hugepages, hugepage_size, path, host_numa_node, host_nodes, policy",
        )
    );
}

#[test]
fn a_key_given_twice() {
    assert_eq!(
        refusal("1G,size=2G"),
        text("Memory '1G,size=2G' has 'size' twice", "give size= once")
    );
}

#[test]
fn a_value_that_its_key_does_not_take() {
    for (spec, key, value, expected) in [
        (
            "1G,id=a b",
            "id",
            "a b",
            "a name of letters, digits, '-' and '_'",
        ),
        ("1G,hugepages=yes", "hugepages", "yes", "auto, on or off"),
        (
            "1G,hugepage_size=3M",
            "hugepage_size",
            "3M",
            "a hugepage size such as 2M or 1G",
        ),
        (
            "1G,host_numa_node=one",
            "host_numa_node",
            "one",
            "a node number such as 0",
        ),
        (
            "1G,host_nodes=0-",
            "host_nodes",
            "0-",
            "a list of node numbers such as 0-1 or [0-1,3]",
        ),
        (
            "1G,host_nodes=0,policy=local",
            "policy",
            "local",
            "bind, preferred or interleave",
        ),
    ] {
        assert_eq!(
            refusal(spec),
            text(
                &format!("Memory '{spec}' has {key}='{value}', which is not {expected}"),
                &format!("{key}= takes {expected}"),
            )
        );
    }
}

#[test]
fn a_hugepage_size_without_hugepages() {
    assert_eq!(
        refusal("1G,hugepages=off,hugepage_size=2M"),
        text(
            "Memory '1G,hugepages=off,hugepage_size=2M' asks for hugepages of one kind and for none",
            "hugepages=on, or leave hugepage_size and path out",
        )
    );
}

#[test]
fn nodes_that_contradict_each_other() {
    assert_eq!(
        refusal("1G,host_numa_node=0,host_nodes=0-1"),
        text(
            "Memory '1G,host_numa_node=0,host_nodes=0-1' names its host nodes in two ways",
            "host_numa_node=0 for one node, or host_nodes=0-1 for several",
        )
    );
    assert_eq!(
        refusal("1G,policy=bind"),
        text(
            "Memory '1G,policy=bind' has policy=bind and no host nodes",
            "host_nodes=0,policy=bind, or policy=interleave for every node",
        )
    );
    assert_eq!(
        refusal("1G,host_nodes=0,2-3"),
        text(
            "Memory '1G,host_nodes=0,2-3' has an unknown key '2-3'",
            "host_nodes=[0-1,3]: a list with commas takes brackets",
        )
    );
}
