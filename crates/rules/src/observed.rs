//! The labels of a group's observed Nodes. The next Node of a group in three zones may join any of them, so a label
//! counts only while all observed Nodes have the same value.

mod others;

use std::collections::BTreeMap;

use crate::capi::{Node, NodeResources};
use arcstr::ArcStr;

use self::others::Others;
use super::labels::ZONE;

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
    #[must_use]
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
    #[must_use]
    pub fn without_others(self) -> Self {
        Self { others: Others::default(), ..self }
    }

    /// Returns true if nothing was observed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(BTreeMap::is_empty) && self.without_zone.is_none() && self.others.is_empty()
    }

    /// Returns the labels besides [`Node::TEMPLATE_LABELS`] that all observed Nodes have with the same value, except those
    /// that may come yet, and the first of these Nodes by name.
    pub(crate) fn others(&self) -> (Vec<(&str, &str)>, Option<&ArcStr>) {
        (self.others.agreed(), self.others.first())
    }

    /// Returns the values of a label.
    #[must_use]
    pub fn values(&self, key: &str) -> Option<&Values> {
        Node::TEMPLATE_LABELS.into_iter().zip(&self.values).find(|(known, _)| *known == key).map(|(_, values)| values)
    }

    /// Returns the first Node by name that had long been ready without a zone; `None` if any Node has a zone.
    #[must_use]
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

#[cfg(test)]
mod tests {
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
}
