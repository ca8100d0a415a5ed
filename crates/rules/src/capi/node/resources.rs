//! Capacity, allocatable and declared features of a Node as one text, which similar Nodes share. A fleet has a hundred thousand Nodes,
//! and a map in each would take more memory than everything else.

use std::{collections::BTreeSet, fmt::Write as _};

use arcstr::ArcStr;
use jiff::SignedDuration;
use serde::Deserialize;
use shared_informer::Interner;

use crate::capi::{LONGEST_VALUE, bounded, wire};

/// The time for which a Node must be ready before its extended resources count as complete: device plugins start after
/// the kubelet.
const SETTLED: SignedDuration = SignedDuration::from_mins(10);

/// The mark of a Node that is settled.
const SETTLED_MARK: &str = " settled";

/// The begin of the line of features.
const FEATURES: char = '!';

/// The resources of a Node, as one text: a line `name capacity allocatable` per resource, ordered by name, a line `!` with
/// the features that its kubelet declares, separated by spaces, if there are any, and last the number of extended resources and huge pages, without those of 0, followed by a mark if the Node is settled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeResources(ArcStr);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    capacity: Option<wire::Map<'a, wire::Amount<'a>>>,
    #[serde(borrow)]
    allocatable: Option<wire::Map<'a, wire::Amount<'a>>>,
    #[serde(borrow)]
    declared_features: Option<Vec<wire::Text<'a>>>,
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: wire::Text<'a>,
    #[serde(borrow, default)]
    status: wire::Text<'a>,
    #[serde(borrow)]
    last_heartbeat_time: Option<wire::Text<'a>>,
    #[serde(borrow)]
    last_transition_time: Option<wire::Text<'a>>,
}

impl Condition<'_> {
    /// Returns true if the condition had kept its status for [`SETTLED`] when the kubelet last wrote it.
    fn is_settled(&self) -> bool {
        let time = |text: &Option<wire::Text<'_>>| bounded::time(text.as_ref()?);
        match (time(&self.last_transition_time), time(&self.last_heartbeat_time)) {
            (Some(since), Some(seen)) => seen.duration_since(since) >= SETTLED,
            (Some(_) | None, Some(_) | None) => false,
        }
    }
}

impl NodeResources {
    /// Returns the resources of a Node, or `None` if it isn't ready, reports no cpu or memory, or reports more
    /// resources than any Node has.
    pub(super) fn of(status: &Status<'_>, interner: &Interner) -> Option<Self> {
        let ready = status.conditions.iter().flatten().find(|condition| condition.kind == "Ready")?;
        let (capacity, allocatable) = (status.capacity.as_ref()?, status.allocatable.as_ref()?);
        let has = |name: &str| capacity.get(name).is_some_and(|amount| !matches!(&*amount.text(), "" | "0"));
        if ready.status != "True" || !has("cpu") || !has("memory") {
            return None;
        }
        let mut text = String::new();
        let mut extended = 0_u16;
        for (name, capacity) in capacity.iter() {
            let Some(allocatable) = allocatable.get(name) else { continue };
            let (capacity, allocatable) = (capacity.text(), allocatable.text());
            if [name, &capacity, &allocatable].iter().any(|part| part.is_empty() || part.contains([' ', '\n'])) {
                continue;
            }
            if (name.contains('/') || name.starts_with("hugepages-")) && capacity != "0" {
                extended = extended.saturating_add(1);
            }
            let written = writeln!(text, "{name} {capacity} {allocatable}");
            debug_assert!(written.is_ok(), "a text takes all");
            if text.len() > LONGEST_VALUE {
                return None;
            }
        }
        let features = status.declared_features.iter().flatten().filter(|feature| is_feature(feature));
        let features: BTreeSet<_> = features.map(|feature| &**feature).collect();
        if !features.is_empty() {
            text.push(FEATURES);
            text.extend(features.iter().flat_map(|feature| [feature, " "]));
            text.push('\n');
        }
        if text.len() > LONGEST_VALUE {
            return None;
        }
        let written = write!(text, "{extended}{}", if ready.is_settled() { SETTLED_MARK } else { "" });
        debug_assert!(written.is_ok(), "a text takes all");
        Some(Self(interner.intern(&text)))
    }

    /// Returns the lines of the resources, and the last line.
    fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once('\n').unwrap_or(("", &self.0))
    }

    pub(super) fn text(&self) -> &ArcStr {
        &self.0
    }

    /// Iterates over the resources as name, capacity and allocatable, each as the Node reports it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.parts().0.lines().filter(|line| !line.starts_with(FEATURES)).filter_map(|line| {
            let (name, amounts) = line.split_once(' ')?;
            let (capacity, allocatable) = amounts.split_once(' ')?;
            Some((name, capacity, allocatable))
        })
    }

    /// Iterates over the features that the kubelet declares (`status.declaredFeatures`), in order.
    pub fn declared_features(&self) -> impl Iterator<Item = &str> {
        self.parts()
            .0
            .lines()
            .filter_map(|line| line.strip_prefix(FEATURES))
            .flat_map(|line| line.split_terminator(' '))
    }

    /// Returns true if the resources and features are the same.
    #[must_use]
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.parts().0 == other.parts().0
    }

    /// Returns the number of its extended resources and huge pages, without those of 0.
    #[must_use]
    pub fn extended(&self) -> u16 {
        let last = self.parts().1;
        last.strip_suffix(SETTLED_MARK).unwrap_or(last).parse().unwrap_or_default()
    }

    /// Returns true if the Node has been ready for so long that no further resources are expected.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.parts().1.ends_with(SETTLED_MARK)
    }
}

/// Returns true for a name that a feature may have: an API server accepts others too.
fn is_feature(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/'))
}
