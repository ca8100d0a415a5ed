//! The labels that a template has from Nodes alone, such as the zone of a CSI driver. They are kept as text, which a group
//! shares with its Nodes as long as these agree: a thousand groups may have a hundred labels each.

use std::{cmp::Ordering, collections::BTreeSet};

use crate::capi::{LONGEST_VALUE, Node};
use arcstr::ArcStr;

use super::take_first;

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
