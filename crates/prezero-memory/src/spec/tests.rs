use super::*;

fn parse(text: &str) -> Result<MemorySpec, SpecError> {
    text.parse()
}

#[test]
fn a_bare_size_and_the_long_form_are_the_same() {
    assert_eq!(parse("16G"), Ok(MemorySpec::new(16 << 30)));
    assert_eq!(parse("size=16G"), parse("16G"));
    let full = parse("size=2G,id=a-1,hugepages=on,hugepage_size=1G,host_numa_node=3").unwrap();
    assert_eq!(full.id.as_deref(), Some("a-1"));
    assert_eq!(full.hugepages, Hugepages::On);
    assert_eq!(full.hugepage_size, Some(PageSize::HUGE_1G));
    assert_eq!(full.nodes, Some(NodeChoice::bind(3)));
    assert_eq!(parse("1G,hugepages=off").unwrap().hugepages, Hugepages::Off);
}

#[test]
fn keys_that_do_not_work_yet_are_refused_like_unknown_ones() {
    for key in ["shared=on", "Size=1G", "on"] {
        let error = parse(&format!("size=1G,{key}")).unwrap_err();
        assert!(
            matches!(error, SpecError::UnknownKey { .. }),
            "{key}: {error}"
        );
        assert!(error.fix().unwrap().contains("hugepage_size"));
    }
}

#[test]
fn nodes_and_a_policy_are_one_choice() {
    for (text, policy, nodes) in [
        ("host_numa_node=1,policy=preferred", Policy::Preferred, "1"),
        ("host_nodes=0-1", Policy::Bind, "0-1"),
        (
            "host_nodes=[0-1,3],policy=interleave",
            Policy::Interleave,
            "0-1,3",
        ),
        (
            "policy=bind,host_nodes=3,host_nodes=0-1",
            Policy::Bind,
            "0-1,3",
        ),
        ("policy=interleave", Policy::Interleave, ""),
    ] {
        let choice = parse(&format!("1G,{text}")).expect(text).nodes.expect(text);
        assert_eq!(
            (choice.policy, choice.nodes.to_string().as_str()),
            (policy, nodes),
            "{text}"
        );
    }
    assert_eq!(parse("1G").unwrap().nodes, None);
    // What follows the brackets is a key again.
    let spec = parse("1G,host_nodes=[0,2],id=x").unwrap();
    assert_eq!(spec.id.as_deref(), Some("x"));
}

#[test]
fn refuses_what_it_would_have_to_guess() {
    for (text, part) in [
        ("size=1G,size=2G", "twice"),
        ("1G,size=2G", "twice"),
        ("hugepages=on", "no size"),
        ("", "refused"),
        ("1G,", "unknown key ''"),
        ("1G,id=", "id=''"),
        ("1G,id=a b", "id='a b'"),
        ("1G,hugepages=yes", "hugepages='yes'"),
        ("1G,path=huge", "path='huge'"),
        ("1G,hugepages=off,path=/x", "and for none"),
        ("1G,hugepage_size=3M", "hugepage_size='3M'"),
        ("1G,hugepage_size=4K", "hugepage_size='4K'"),
        ("1G,host_numa_node=-1", "host_numa_node='-1'"),
        ("1G,hugepages=off,hugepage_size=2M", "and for none"),
        ("1G,host_numa_node=0,host_nodes=0", "in two ways"),
        ("1G,host_numa_node=0,host_numa_node=1", "twice"),
        ("1G,policy=bind", "policy=bind and no host nodes"),
        ("1G,policy=preferred", "policy=preferred and no host nodes"),
        ("1G,policy=local,host_nodes=0", "policy='local'"),
        ("1G,policy=interleave,policy=bind", "twice"),
        ("1G,host_nodes=", "host_nodes=''"),
        ("1G,host_nodes=[0,1", "host_nodes='[0,1'"),
        ("1G,host_nodes=0,1", "unknown key '1'"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
        assert!(error.fix().is_some(), "{text}");
    }
}

#[test]
fn a_fraction_is_answered_with_what_to_type() {
    assert_eq!(
        parse("1.5G").unwrap_err().fix().as_deref(),
        Some("size=1536M")
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_spec_or_a_refusal(text in "\\PC{0,40}") {
        if let Err(error) = parse(&text) {
            proptest::prop_assert!(error.fix().is_some());
        }
    }

    #[test]
    fn any_mix_of_known_words_is_a_spec_or_a_refusal(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "size", "id", "hugepages", "hugepage_size", "host_numa_node", "=", ",", "on",
                "1G", "-1", "1.5", "99999999999999999999", "2M",
            ]), 0..12)
    ) {
        let _ = parse(&words.concat());
    }
}
