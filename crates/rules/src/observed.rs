//! The labels of a group's observed Nodes. The next Node of a group in three zones may join any of them, so a label
//! counts only while all observed Nodes have the same value.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use arcstr::ArcStr;

use crate::{
    GroupId, ObservedNode, Quantity, Source,
    capi::{LONGEST_VALUE, Node, NodeResources},
    labels,
    labels::ZONE,
    remembered,
    resource_list::{CPU, MEMORY, quantity},
};

/// The maximum number of values that are kept of a label, the first ones in order: two already show that Nodes differ.
const KEPT: usize = 3;

/// The observed values of [`Node::TEMPLATE_LABELS`], by position, and the other labels. The order of observations
/// doesn't matter.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedLabels {
    values: [Values; Node::TEMPLATE_LABELS.len()],
    without_zone: Option<ArcStr>,
    others: Others,
}

/// The values of one label, each with the first Node by name that has it.
pub type Values = BTreeMap<ArcStr, ArcStr>;

impl ObservedLabels {
    /// Records the labels of a Node; an empty value is skipped. Returns true if that changed anything.
    pub fn observe(&mut self, node: &Node) -> bool {
        let name = &node.meta.key.name;
        let mut changed = false;
        for (key, value) in node.template_labels.iter().filter(|(_, value)| !value.is_empty()) {
            changed |= self.values_mut(key).is_some_and(|values| add(values, value, name));
        }
        // A cloud provider sets the label only some time after a Node has joined.
        let is_settled = node.resources.as_ref().is_some_and(NodeResources::is_settled);
        let has_zone = node.template_label(ZONE).is_some_and(|zone| !zone.is_empty());
        if is_settled && !has_zone {
            changed |= take_first(&mut self.without_zone, name);
        }
        changed | self.others.observe(node, is_settled)
    }

    /// Adds the observations of other Nodes, except their other labels.
    pub fn merge(&mut self, other: &Self) {
        for (values, others) in self.values.iter_mut().zip(&other.values) {
            for (value, node) in others {
                add(values, value, node);
            }
        }
        if let Some(node) = &other.without_zone {
            take_first(&mut self.without_zone, node);
        }
    }

    /// Returns the observations without one label.
    pub fn without(mut self, key: &str) -> Self {
        if let Some(values) = self.values_mut(key) {
            values.clear();
        }
        if key == ZONE {
            self.without_zone = None;
        }
        self
    }

    /// Returns the observations without the other labels.
    pub fn without_others(self) -> Self {
        Self { others: Others::default(), ..self }
    }

    /// Returns true if nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(BTreeMap::is_empty) && self.without_zone.is_none() && self.others.is_empty()
    }

    /// Returns the labels besides [`Node::TEMPLATE_LABELS`] that all observed Nodes have with the same value, except those
    /// that may come yet, and the first of these Nodes by name.
    pub(crate) fn others(&self) -> (Vec<(&str, &str)>, Option<&ArcStr>) {
        (self.others.agreed(), self.others.first())
    }

    /// Returns the values of a label.
    pub fn values(&self, key: &str) -> Option<&Values> {
        Node::TEMPLATE_LABELS.into_iter().zip(&self.values).find(|(known, _)| *known == key).map(|(_, values)| values)
    }

    /// Returns the first Node by name that had long been ready without a zone; `None` if any Node has a zone.
    pub(crate) fn without_zone(&self) -> Option<&ArcStr> {
        let shows_one = self.values(ZONE).is_some_and(|zones| !zones.is_empty());
        self.without_zone.as_ref().filter(|_| !shows_one)
    }

    /// Returns the labels on which all Nodes that have them agree: key, value and the first such Node.
    pub(crate) fn agreed(&self) -> impl Iterator<Item = (&'static str, &ArcStr, &ArcStr)> {
        let only = |values: &'_ Values| values.len() == 1;
        Node::TEMPLATE_LABELS.into_iter().zip(&self.values).filter(move |(_, values)| only(values)).filter_map(
            |(key, values)| {
                let (value, node) = values.first_key_value()?;
                Some((key, value, node))
            },
        )
    }

    /// Returns the labels on which Nodes differ, with their values.
    pub fn differing(&self) -> impl Iterator<Item = (&'static str, &Values)> {
        Node::TEMPLATE_LABELS.into_iter().zip(&self.values).filter(|(_, values)| values.len() > 1)
    }

    fn values_mut(&mut self, key: &str) -> Option<&mut Values> {
        let mut all = Node::TEMPLATE_LABELS.into_iter().zip(&mut self.values);
        all.find(|(known, _)| *known == key).map(|(_, values)| values)
    }
}

/// Keeps the first name in order. Returns true if it changed.
fn take_first(first: &mut Option<ArcStr>, node: &ArcStr) -> bool {
    let is_first = first.as_ref().is_none_or(|known| node < known);
    if is_first {
        *first = Some(node.clone());
    }
    is_first
}

fn add(values: &mut Values, value: &str, node: &ArcStr) -> bool {
    if let Some(known) = values.get_mut(value) {
        let is_earlier = *node < *known;
        if is_earlier {
            known.clone_from(node);
        }
        return is_earlier;
    }
    if values.len() == KEPT && values.last_key_value().is_some_and(|(last, _)| last.as_str() < value) {
        return false;
    }
    values.insert(value.into(), node.clone());
    if values.len() > KEPT {
        values.pop_last();
    }
    true
}

/// A Node whose zone isn't its failure domain: its infrastructure provider names zones and failure domains
/// differently.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct OtherZone {
    /// The Node.
    pub node: ArcStr,
    /// The failure domain of its Machine's owner.
    pub domain: ArcStr,
    /// Its zone.
    pub zone: ArcStr,
}

// The resources of observed Nodes, which a new Node of the same templates will have. The index chooses the Node, and
// decides how long its values are kept.

/// The observed resources of a Node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObservedResources {
    /// The Node's name.
    pub node: ArcStr,
    /// The group that it belongs to, or belonged to.
    pub group: GroupId,
    /// Its resources.
    pub resources: BTreeMap<ArcStr, Amounts>,
    /// The features that its kubelet declares, in order.
    pub declared_features: Vec<String>,
}

/// A Node's amounts of a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Amounts {
    /// The capacity.
    pub capacity: Quantity,
    /// The amount for pods: never more than the capacity, never less than 0.
    pub allocatable: Quantity,
}

impl Amounts {
    /// Returns the amount that pods don't get.
    pub fn overhead(self) -> Quantity {
        self.capacity - self.allocatable
    }
}

/// The huge pages of which kubelets report an amount of 0, by the architecture of their Nodes, each with one of these Nodes.
/// A kubelet reports all sizes that its processor has, also those without pages.
pub type EmptyHugePages = BTreeMap<ArcStr, BTreeMap<ArcStr, ArcStr>>;

/// Observations of the real Nodes of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNodes<'a> {
    /// One of the group's Nodes.
    pub sample: Option<&'a Node>,
    /// The labels of the group's Nodes, including deleted ones.
    pub observed: Option<&'a ObservedLabels>,
    /// The labels of the Nodes of another group, if `same_templates` is of that group.
    pub of_sibling: Option<&'a ObservedLabels>,
    /// A Node of the same infrastructure provider whose zone isn't its failure domain.
    pub other_zone: Option<&'a OtherZone>,
    /// What is remembered of Nodes that were made from templates of the same content.
    pub remembered: Option<Remembered<'a>>,
    /// The resources of an observed Node that was made from the group's own templates. If something is remembered, it is a
    /// running Node of the group.
    pub same_templates: Option<&'a ObservedResources>,
    /// The resources of an observed Node of the group that was made from other templates, which the group had before.
    pub other_templates: Option<&'a ObservedResources>,
    /// The sizes of huge pages of all observed Nodes.
    pub empty_huge_pages: Option<&'a EmptyHugePages>,
    /// True if the group is a MachinePool that owns a Machine.
    pub pool_has_machines: bool,
}

/// What is remembered of the Nodes of a group.
#[derive(Clone, Copy, Debug)]
pub struct Remembered<'a> {
    /// The entry.
    pub entry: &'a remembered::Entry,
    /// The architecture of its Nodes.
    pub arch: &'a str,
    /// True if nothing but the templates decides what a Node of the group is.
    pub is_whole: bool,
}

impl Remembered<'_> {
    /// Returns the source of a value that a group takes from it.
    pub(crate) fn source(&self) -> Source {
        Source::Remembered(Box::new(self.entry.seen.clone()))
    }
}

impl ObservedResources {
    /// Returns the resources of a group's Node; `None` if the Node doesn't report its resources yet, or has no cpu or
    /// memory.
    pub fn of(node: &Node, group: GroupId) -> Option<Self> {
        let shown = node.resources.as_ref()?;
        let resources: BTreeMap<_, _> = shown.iter().filter_map(amounts).collect();
        let has = |resource: &str| resources.get(resource).is_some_and(|amounts| !amounts.allocatable.is_zero());
        if !has(CPU) || !has(MEMORY) {
            return None;
        }
        let declared_features = shown.declared_features().map(ToOwned::to_owned).collect();
        Some(Self { node: node.meta.key.name.clone(), group, resources, declared_features })
    }

    /// Returns the source of a value that a group takes from this Node.
    pub(crate) fn source_for(&self, group: &GroupId) -> Source {
        let sibling = (self.group != *group).then(|| self.group.clone());
        Source::Learned(Box::new(ObservedNode { node: self.node.clone(), sibling }))
    }
}

/// Returns the amounts of a resource; `None` if a template couldn't have its name or amount.
fn amounts((name, capacity, allocatable): (&str, &str, &str)) -> Option<(ArcStr, Amounts)> {
    labels::check_key(name).ok()?;
    let capacity = quantity(capacity).ok()?;
    let allocatable = quantity(allocatable).ok()?.min(capacity);
    Some((ArcStr::from(name), Amounts { capacity, allocatable }))
}

// The labels that a template has from Nodes alone, such as the zone of a CSI driver. They are kept as text, which a group
// shares with its Nodes as long as these agree: a thousand groups may have a hundred labels each.

/// What was observed of these labels.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Others {
    /// All labels that any Node has had, in the order of their keys: a line `key=value` for each on which the Nodes agree
    /// that have it, and a line `key` for each other.
    seen: ArcStr,
    /// The labels of the settled Nodes, as lines; of these labels only the keys count. `None` before one is settled.
    settled: Option<ArcStr>,
    /// The first Node by name.
    first: Option<ArcStr>,
    /// True if the Nodes have too many different labels; none counts then.
    given_up: bool,
}

impl Others {
    /// Records the labels of a Node. A settled one that lacks a label won't get it any more. Returns true if that changed
    /// anything.
    pub(super) fn observe(&mut self, node: &Node, is_settled: bool) -> bool {
        let Some(labels) = node.other_labels.text().filter(|_| !self.given_up) else { return false };
        if labels.is_empty() && !is_settled {
            return false;
        }
        let mut changed = take_first(&mut self.first, &node.meta.key.name);
        if let Some(seen) = union(&self.seen, labels) {
            self.seen = if seen == *labels { labels.clone() } else { seen.into() };
            changed = true;
        }
        if is_settled {
            let common = match &self.settled {
                None => Some(labels.clone()),
                Some(settled) => intersection(settled, labels).map(ArcStr::from),
            };
            changed |= common.is_some();
            self.settled = common.or(self.settled.take());
        }
        if self.seen.len() > LONGEST_VALUE {
            *self = Self { given_up: true, ..Self::default() };
        }
        changed
    }

    /// Returns the labels on which the Nodes agree, in the order of their keys.
    pub(super) fn agreed(&self) -> Vec<(&str, &str)> {
        let settled: Option<BTreeSet<_>> = self.settled.as_ref().map(|settled| settled.lines().map(key).collect());
        let of_all = |key: &str| settled.as_ref().is_none_or(|settled| settled.contains(key));
        self.seen.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| of_all(key)).collect()
    }

    pub(super) fn first(&self) -> Option<&ArcStr> {
        self.first.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn key(line: &str) -> &str {
    line.split_once('=').map_or(line, |(key, _)| key)
}

/// Returns the lines of both texts, where those of one key that differ become the key alone; `None` if these are the
/// lines of `seen`.
fn union(seen: &str, more: &str) -> Option<String> {
    if seen == more {
        return None;
    }
    let mut all = String::with_capacity(seen.len());
    let (mut old, mut new) = (seen.lines().peekable(), more.lines().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => key(old).cmp(key(new)),
        };
        let line = match order {
            Ordering::Less => old.next(),
            Ordering::Greater => new.next(),
            Ordering::Equal => match (old.next(), new.next()) {
                (Some(old), Some(new)) if old != new => Some(key(old)),
                (old, _) => old,
            },
        };
        all.extend(line.into_iter().flat_map(|line| [line, "\n"]));
    }
    (all != seen).then_some(all)
}

/// Returns the lines of a text whose keys are in the other one too; `None` if these are all.
fn intersection(settled: &str, more: &str) -> Option<String> {
    let keys: BTreeSet<_> = more.lines().map(key).collect();
    if settled.lines().all(|line| keys.contains(key(line))) {
        return None;
    }
    Some(settled.lines().filter(|line| keys.contains(key(line))).flat_map(|line| [line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::node;

    const TYPE: &str = "node.kubernetes.io/instance-type";

    fn named(name: &str, zone: &str) -> Node {
        let mut node = node(&[(ZONE, zone), (TYPE, "large")]);
        node.meta.key.name = ArcStr::from(name);
        node
    }

    fn seen(nodes: &[(&str, &str)]) -> ObservedLabels {
        let mut observed = ObservedLabels::default();
        for (name, zone) in nodes {
            observed.observe(&named(name, zone));
        }
        observed
    }

    #[test]
    fn a_label_counts_while_all_nodes_agree_that_have_it() {
        let one = seen(&[("b", "z1"), ("a", "z1"), ("c", "")]);
        let agreed: Vec<_> = one.agreed().map(|(key, value, node)| (key, &**value, &**node)).collect();
        assert_eq!(agreed, [(TYPE, "large", "a"), (ZONE, "z1", "a")]);
        let two = seen(&[("b", "z1"), ("a", "z2")]);
        assert_eq!(two.agreed().map(|(key, ..)| key).collect::<Vec<_>>(), [TYPE]);
        let differing: Vec<_> = two.differing().map(|(key, values)| (key, values.clone())).collect();
        let values = [("z1", "b"), ("z2", "a")].map(|(value, node)| (ArcStr::from(value), ArcStr::from(node)));
        assert_eq!(differing, [(ZONE, BTreeMap::from(values))]);
    }

    #[test]
    fn the_order_of_nodes_and_merges_does_not_matter() {
        let nodes = [("a", "z4"), ("b", "z1"), ("c", "z3"), ("d", "z2"), ("e", "z1"), ("0", "z5")];
        let mut reversed = nodes;
        reversed.reverse();
        assert_eq!(seen(&nodes), seen(&reversed));
        let mut merged = seen(&nodes[3..]);
        merged.merge(&seen(&nodes[..3]));
        assert_eq!(merged, seen(&nodes));
    }

    #[test]
    fn only_what_is_new_is_a_change() {
        let mut observed = seen(&[("b", "z1")]);
        assert!(!observed.observe(&named("b", "z1")));
        assert!(!observed.observe(&named("c", "z1")));
        assert!(observed.observe(&named("a", "z1")), "the first Node by name is another");
        assert!(observed.observe(&named("c", "z2")));
        assert!(observed.without(ZONE).without(TYPE).is_empty());
    }

    fn with(name: &str, labels: &str) -> Node {
        let mut node = node(&[]);
        node.meta.key.name = name.into();
        node.other_labels = labels.split_terminator(' ').collect();
        node
    }

    /// The labels of Nodes, each with a mark whether it is settled.
    #[rstest]
    #[case::none(&[], "")]
    #[case::one(&[("team=db zone=a", false)], "team=db zone=a")]
    #[case::one_that_is_settled(&[("team=db zone=a", true)], "team=db zone=a")]
    #[case::all_agree(&[("team=db", true), ("team=db", true)], "team=db")]
    #[case::values_differ(&[("team=db zone=a", true), ("team=db zone=b", true)], "team=db")]
    #[case::three_values(&[("zone=a", true), ("zone=b", true), ("zone=a", true)], "")]
    #[case::one_may_get_it_yet(&[("team=db zone=a", true), ("team=db", false)], "team=db zone=a")]
    #[case::one_will_not_get_it(&[("team=db zone=a", true), ("team=db", true)], "team=db")]
    #[case::one_that_settled_without_it(&[("team=db zone=a", false), ("team=db", true)], "team=db")]
    #[case::settled_without_any(&[("team=db", true), ("", true)], "")]
    #[case::not_settled_without_any(&[("team=db", true), ("", false)], "team=db")]
    #[case::keys_in_another_order_than_lines(&[("a=1 a-b=1", true), ("a=1 a-b=2", true)], "a=1")]
    #[case::empty_values(&[("role=", true), ("role=", true)], "role=")]
    fn labels_count_on_which_all_agree(#[case] nodes: &[(&str, bool)], #[case] expected: &str) {
        let nodes: Vec<_> = nodes
            .iter()
            .zip('a'..)
            .map(|((labels, settled), name)| (with(&name.to_string(), labels), *settled))
            .collect();
        let seen = |nodes: &mut dyn Iterator<Item = &(Node, bool)>| {
            let mut others = Others::default();
            for (node, settled) in nodes {
                others.observe(node, *settled);
                assert!(!others.observe(node, *settled), "it has been seen");
            }
            let agreed: Vec<_> = others.agreed().iter().map(|(key, value)| format!("{key}={value}")).collect();
            agreed.join(" ")
        };
        assert_eq!(seen(&mut nodes.iter()), expected);
        assert_eq!(seen(&mut nodes.iter().rev()), expected, "the order doesn't matter");
    }

    #[test]
    fn a_label_that_changes_or_goes_counts_no_longer() {
        let mut others = Others::default();
        for labels in ["state=old team=db zone=a", "state=new team=db zone=a", "state=old team=db"] {
            others.observe(&with("a", labels), true);
        }
        assert_eq!(others.agreed(), [("team", "db")]);
    }

    #[test]
    fn a_group_shares_the_text_of_its_nodes() {
        let mut others = Others::default();
        let node = with("b", "team=db");
        others.observe(&node, false);
        assert!(ArcStr::ptr_eq(&others.seen, node.other_labels.text().unwrap()));
        others.observe(&with("a", "team=db"), false);
        assert_eq!(others.first().map(ArcStr::as_str), Some("a"));
    }

    #[test]
    fn nodes_of_too_many_labels_are_given_up() {
        let mut others = Others::default();
        for number in 0..1_000 {
            others.observe(&with("a", &format!("{number:03}={number:050}")), false);
        }
        assert_eq!((others.agreed(), others.seen.len()), (Vec::new(), 0));
    }
}
