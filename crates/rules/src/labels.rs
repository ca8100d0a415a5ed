//! Labels of the Node that would join: those of the labels annotation, and those of a Machine that Cluster API syncs
//! to its Node.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use regex::Regex;

use crate::{
    Problem, ProblemKind,
    problem::{cut, parse_list},
};

/// The label of a Node's architecture.
pub const ARCH: &str = "kubernetes.io/arch";

/// The label of a Node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The suffix of the capacity annotation that holds labels.
pub const LABELS: &str = "labels";

const NODE_ROLE: &str = "node-role.kubernetes.io";
const NODE_RESTRICTION: &str = "node-restriction.kubernetes.io";
const NODE_MANAGED: &str = "node.cluster.x-k8s.io";

/// Returns true if Cluster API syncs a Machine's label to its Node: its domain is `node-role.kubernetes.io`, is or ends
/// in `node-restriction.kubernetes.io` or `node.cluster.x-k8s.io`, or one of `additional` matches the key. These are
/// the expressions of Cluster API's flag `--additional-sync-machine-labels`; they aren't anchored.
pub(crate) fn is_synced_to_nodes(key: &str, additional: &[Regex]) -> bool {
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let within = |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    domain == NODE_ROLE
        || within(NODE_RESTRICTION)
        || within(NODE_MANAGED)
        || additional.iter().any(|regex| regex.is_match(key))
}

/// Parses the labels of an annotation `key=value,…`. The last of equal keys counts; an invalid entry is a problem.
pub fn parse(annotation: &str, text: &str) -> (BTreeMap<String, String>, Vec<Problem>) {
    let (labels, problems) = parse_list((ProblemKind::Labels, annotation, "labels"), text, parse_entry);
    (labels.into_iter().collect(), problems)
}

fn parse_entry(entry: &str) -> Result<(String, String), &'static str> {
    let (key, value) = entry.split_once('=').ok_or("a label is written key=value")?;
    check_key(key)?;
    check_value(value)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns those of a template's metadata labels that reach the Node, and a problem for every one that is invalid.
pub(super) fn synced(
    labels: &BTreeMap<ArcStr, ArcStr>,
    additional: &[Regex],
) -> (BTreeMap<String, String>, Vec<Problem>) {
    let synced = labels.iter().filter(|(key, _)| is_synced_to_nodes(key, additional));
    usable("spec.template.metadata.labels", synced)
}

/// Returns the labels that OpenShift puts on the Nodes of a group (all that its template has for them), and a problem
/// for every one that is invalid.
pub(super) fn of_nodes(labels: &BTreeMap<ArcStr, ArcStr>) -> (BTreeMap<String, String>, Vec<Problem>) {
    usable("spec.template.spec.metadata.labels", labels)
}

fn usable<'a>(
    field: &str,
    labels: impl IntoIterator<Item = (&'a ArcStr, &'a ArcStr)>,
) -> (BTreeMap<String, String>, Vec<Problem>) {
    let mut fit = BTreeMap::new();
    let mut problems = Vec::new();
    for (key, value) in labels {
        match check_key(key).and_then(|()| check_value(value)) {
            Ok(()) => {
                fit.insert(key.to_string(), value.to_string());
            }
            Err(rule) => problems.push(Problem::new(
                ProblemKind::Labels,
                format!("{field}, {}: {rule}; this label is ignored", cut(&format!("{key}={value}"))),
            )),
        }
    }
    (fit, problems)
}

/// Checks that Kubernetes accepts this as the key of a label or taint, or as the name of a resource: a name of at most
/// 63 letters, digits, `-`, `_` and `.`, perhaps after a DNS domain and a slash.
///
/// # Errors
/// The rule that is broken.
pub(crate) fn check_key(key: &str) -> Result<(), &'static str> {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    if let Some(domain) = domain
        && (domain.len() > 253 || !domain.split('.').all(is_dns_label))
    {
        return Err("what stands before the slash of a key must be a lower-case DNS domain such as example.com");
    }
    if name.is_empty() || !is_name(name) {
        return Err("the name in a key must be 1 to 63 letters, digits, '-', '_' or '.', and start and end with a \
                    letter or digit");
    }
    Ok(())
}

/// Checks that Kubernetes accepts this as the value of a label or taint: empty, or a name as in [`check_key`].
///
/// # Errors
/// The rule that is broken.
pub(crate) fn check_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err("a value must be at most 63 letters, digits, '-', '_' or '.', and start and end with a letter or digit")
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// Returns true for lower-case letters, digits and inner dashes; Kubernetes limits the length of the domain, not of
/// its parts.
fn is_dns_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.chars().all(|c| is_end(c) || c == '-') && text.starts_with(is_end) && text.ends_with(is_end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::assert_names;

    #[rstest]
    #[case::node_role("node-role.kubernetes.io/gpu", true)]
    #[case::below_node_role("sub.node-role.kubernetes.io/gpu", false)]
    #[case::node_restriction("node-restriction.kubernetes.io/pool", true)]
    #[case::below_node_restriction("team.node-restriction.kubernetes.io/pool", true)]
    #[case::ends_like_node_restriction("my-node-restriction.kubernetes.io/pool", false)]
    #[case::managed("node.cluster.x-k8s.io/zone", true)]
    #[case::below_managed("team.node.cluster.x-k8s.io/zone", true)]
    #[case::ends_like_managed("my-node.cluster.x-k8s.io/zone", false)]
    #[case::cluster_api_itself("cluster.x-k8s.io/cluster-name", false)]
    #[case::no_domain("tier", false)]
    #[case::additional("example.com/tier", true)]
    #[case::additional_is_not_anchored("x.example.com/tiers", true)]
    fn cluster_api_syncs(#[case] key: &str, #[case] expected: bool) {
        let additional = [Regex::new("^never$").unwrap(), Regex::new("example.com/tier").unwrap()];
        assert_eq!(is_synced_to_nodes(key, &additional), expected);
    }

    #[rstest]
    #[case::one("a=b", &[("a", "b")])]
    #[case::several("a=b,example.com/c=d", &[("a", "b"), ("example.com/c", "d")])]
    #[case::an_empty_value("a=", &[("a", "")])]
    #[case::the_last_of_equal_keys("a=b,a=c", &[("a", "c")])]
    #[case::nothing("", &[])]
    fn labels_are_read(#[case] text: &str, #[case] expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse("key", text), (expected, Vec::new()));
    }

    #[rstest]
    #[case::no_equals_sign("tier", "key=value")]
    #[case::no_key("=b", "1 to 63 letters")]
    #[case::a_bad_key("-a=b", "1 to 63 letters")]
    #[case::a_bad_domain("Example.com/a=b", "lower-case DNS domain")]
    #[case::two_slashes("a/b/c=d", "1 to 63 letters")]
    #[case::a_bad_value("a=b c", "a value must be")]
    #[case::two_equals_signs("a=b=c", "a value must be")]
    fn a_bad_entry_is_dropped_alone_and_named(#[case] entry: &str, #[case] rule: &str) {
        let (labels, problems) = parse("example.com/labels", &format!("first=1,{entry},last=2"));
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["first", "last"]);
        assert_names(&problems, ProblemKind::Labels, &["example.com/labels", &format!("{entry:?}"), rule, "ignored"]);
    }

    #[rstest]
    #[case("a", true)]
    #[case("MyName", true)]
    #[case("my.name_1-x", true)]
    #[case("example.com/MyName", true)]
    #[case("1.2.3.4/5678", true)]
    #[case("", false)]
    #[case("/a", false)]
    #[case("a/", false)]
    #[case("a b", false)]
    #[case(".a", false)]
    #[case("a_", false)]
    #[case("ex ample/a", false)]
    #[case("-example/a", false)]
    #[case("a..b/c", false)]
    #[case("ünïcode", false)]
    fn a_key_is_checked_as_kubernetes_does(#[case] key: &str, #[case] expected: bool) {
        assert_eq!(check_key(key).is_ok(), expected);
    }

    #[test]
    fn lengths_are_limited_as_in_kubernetes() {
        let text = |length| "a".repeat(length);
        assert!(check_value(&text(63)).is_ok());
        assert!(check_value(&text(64)).is_err());
        assert!(check_key(&format!("{}/{}", text(253), text(63))).is_ok());
        assert!(check_key(&format!("{}/{}", text(254), text(63))).is_err());
        assert!(check_key(&format!("{}/{}", text(253), text(64))).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = parse("key", &text);
        }

        #[test]
        fn valid_labels_survive(labels in prop::collection::btree_map("[a-z]{1,9}", "[a-zA-Z0-9]{0,9}", 0..6)) {
            let text = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse("key", &text), (labels, Vec::new()));
        }
    }
}
