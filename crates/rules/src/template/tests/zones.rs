//! The zone and similar labels, from Nodes, failure domain and annotations.

use rstest::rstest;

use super::*;
use crate::{ObservedNode, observed::OtherZone};

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Returns Nodes with these names and zones.
fn nodes(shown: &[(&str, &str)]) -> Vec<Node> {
    let node = |(name, zone): &(&str, &str)| {
        let mut node = node(&[(ZONE, zone), (REGION, "r"), (INSTANCE_TYPE, "large")]);
        node.meta.key.name = ArcStr::from(*name);
        node
    };
    shown.iter().map(node).collect()
}

fn other_zone() -> OtherZone {
    OtherZone { node: "n".into(), domain: "1".into(), zone: "region-1".into() }
}

/// Returns the zone with its source, and the notes.
fn zone(
    domain: Option<&str>,
    annotation: Option<&str>,
    (shown, is_there): (&[(&str, &str)], bool),
    other: Option<&OtherZone>,
) -> (Option<(String, String)>, Vec<String>) {
    let annotations: Vec<_> = annotation.map(|zone| ("labels", format!("{ZONE}={zone}"))).into_iter().collect();
    let annotations: Vec<_> = annotations.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut group = sized(&annotations);
    group.failure_domain = domain.map(Into::into);
    let nodes = nodes(shown);
    let observed = observed(&nodes);
    let sample = nodes.first().filter(|_| is_there);
    let nodes = RealNodes { sample, observed: Some(&observed), other_zone: other, ..RealNodes::default() };
    let built = build(&group, None, nodes, &TemplateRules::default());
    assert_eq!(built.problems, []);
    let label = built.template.unwrap().labels.remove(ZONE);
    (label.map(|label| (label.value, label.source.to_string())), built.notes)
}

const NONE: (&[(&str, &str)], bool) = (&[], false);
const ONE: &[(&str, &str)] = &[("b", "z1"), ("a", "z1")];
const TWO: &[(&str, &str)] = &[("b", "z1"), ("a", "z2")];
const DOMAIN: &str = "spec.template.spec.failureDomain";
const ANNOTATION: &str = "annotation capacity.cluster-autoscaler.kubernetes.io/labels";

#[rstest]
#[case::nothing(None, None, NONE, None)]
#[case::a_failure_domain(Some("d"), None, NONE, Some(("d", DOMAIN)))]
#[case::an_annotation_is_stronger(Some("d"), Some("x"), NONE, Some(("x", ANNOTATION)))]
#[case::nodes_that_agree(None, None, (ONE, true), Some(("z1", "Node b")))]
#[case::nodes_are_stronger(Some("d"), Some("x"), (ONE, true), Some(("z1", "Node b")))]
#[case::nodes_that_are_gone(None, None, (ONE, false), Some(("z1", "learned from Node a")))]
#[case::nodes_that_are_gone_over_a_failure_domain(Some("d"), None, (ONE, false), Some(("z1", "learned from Node a")))]
#[case::an_annotation_over_nodes_that_are_gone(None, Some("x"), (ONE, false), Some(("x", ANNOTATION)))]
#[case::nodes_that_differ(None, None, (TWO, true), None)]
#[case::nodes_that_differ_say_nothing_of_a_failure_domain(Some("d"), None, (TWO, true), None)]
#[case::nodes_that_differed(Some("d"), None, (TWO, false), None)]
#[case::an_annotation_where_nodes_differ(None, Some("x"), (TWO, true), Some(("x", ANNOTATION)))]
fn a_zone_comes_from(
    #[case] domain: Option<&str>,
    #[case] annotation: Option<&str>,
    #[case] nodes: (&[(&str, &str)], bool),
    #[case] expected: Option<(&str, &str)>,
) {
    let (found, notes) = zone(domain, annotation, nodes, None);
    assert_eq!(found.as_ref().map(|(zone, source)| (zone.as_str(), source.as_str())), expected);
    let differ = nodes.0 == TWO;
    assert_eq!(notes.len(), usize::from(differ), "{notes:?}");
    for part in ["z1 (Node b), z2 (Node a)", ZONE].into_iter().filter(|_| differ) {
        assert!(notes[0].contains(part), "{part:?} isn't in {notes:?}");
    }
}

#[test]
fn a_failure_domain_that_is_no_zone_counts_for_nothing() {
    let other = other_zone();
    let (found, notes) = zone(Some("2"), None, NONE, Some(&other));
    assert_eq!(found, None);
    for part in [DOMAIN, " 2 ", "Node n,", "failure domain 1 ", "zone region-1;", "annotation labels"] {
        assert!(notes[0].contains(part), "{part:?} isn't in {notes:?}");
    }
    assert_eq!(zone(None, None, NONE, Some(&other)), (None, Vec::new()));
    let (found, notes) = zone(Some("2"), None, (ONE, true), Some(&other));
    assert_eq!((found.unwrap().0.as_str(), notes), ("z1", Vec::new()), "its own Nodes know it");
}

#[rstest]
#[case("true", Some("d"), 0, 0)]
#[case("false", None, 0, 1)]
#[case("no", Some("d"), 1, 0)]
fn an_annotation_turns_the_failure_domain_off(
    #[case] value: &str,
    #[case] expected: Option<&str>,
    #[case] problems: usize,
    #[case] notes: usize,
) {
    let mut group = sized(&[]);
    group.failure_domain = Some("d".into());
    let built =
        build(&own(group, "zone-from-failure-domain", value), None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(built.problems.len(), problems, "{:?}", built.problems);
    let says_why = |note: &&String| note.contains("zone-from-failure-domain is false");
    assert_eq!(built.notes.iter().filter(says_why).count(), notes, "{:?}", built.notes);
    let template = built.template.unwrap();
    assert_eq!(template.labels.get(ZONE).map(|label| label.value.as_str()), expected);
}

/// While the instance type changes, the Nodes differ, and so will future machines.
#[test]
fn nodes_of_two_types_leave_the_type_out_and_the_zone_in() {
    let mut nodes = nodes(ONE);
    nodes[0].template_labels =
        [(ZONE, ArcStr::from("z1")), (INSTANCE_TYPE, ArcStr::from("huge"))].into_iter().collect();
    let observed = observed(&nodes);
    let nodes = RealNodes { sample: nodes.first(), observed: Some(&observed), ..RealNodes::default() };
    let labels = build(&sized(&[]), None, nodes, &TemplateRules::default()).template.unwrap().labels;
    assert_eq!(labels.get(INSTANCE_TYPE), None);
    assert_eq!(labels[ZONE].value, "z1");
    assert_eq!(labels[REGION].source.to_string(), "Node a", "the first that shows it");
}

#[test]
fn of_another_groups_nodes_the_type_counts_where_they_agree() {
    let group = sized(&[]);
    let observed_resources = observed_resources("MachineDeployment/team-a/others", &[]);
    let of_type = |shown: &[(&str, &str)], other_type: Option<&str>| {
        let mut nodes = nodes(shown);
        if let Some(other) = other_type {
            nodes[0].template_labels = [(INSTANCE_TYPE, ArcStr::from(other))].into_iter().collect();
        }
        let of_sibling = observed(&nodes);
        let nodes = RealNodes {
            same_templates: Some(&observed_resources),
            of_sibling: Some(&of_sibling),
            ..RealNodes::default()
        };
        build(&group, None, nodes, &TemplateRules::default()).template.unwrap().labels
    };
    let labels = of_type(ONE, None);
    let from = ObservedNode { node: "worker-x7".into(), sibling: Some(observed_resources.group.clone()) };
    assert_eq!(
        (labels[INSTANCE_TYPE].value.as_str(), &labels[INSTANCE_TYPE].source),
        ("large", &Source::Learned(from.into()))
    );
    assert_eq!((labels.get(ZONE), labels.get(REGION)), (None, None));
    assert_eq!(of_type(ONE, Some("huge")).get(INSTANCE_TYPE), None);
}
