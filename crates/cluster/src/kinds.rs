//! The choice of the template kinds to follow. The number of kinds is limited in total and per namespace: kinds named
//! in one namespace must never displace those named in others. The functions here are pure.

use std::collections::{BTreeMap, BTreeSet};

use arcstr::ArcStr;

use rules::capi::KindRef;

/// The maximum number of followed kinds: each costs a list, a watch and the objects they deliver.
pub(super) const KINDS: usize = 64;
/// The maximum number of followed kinds that count for one namespace.
pub(super) const KINDS_OF_A_NAMESPACE: usize = 16;

/// The limit that keeps a kind from being followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// Each namespace that names the kind has reached its limit.
    OfItsNamespaces,
    /// The total limit is reached.
    InAll,
}

impl Refusal {
    /// Returns the reason as text for the groups that name the kind.
    pub(super) fn why(self) -> String {
        match self {
            Self::OfItsNamespaces => format!(
                "node groups of its namespace name more than {KINDS_OF_A_NAMESPACE} kinds of infrastructure templates, \
                 and this one isn't followed: name fewer, or state the capacity by annotations"
            ),
            Self::InAll => format!(
                "node groups name more than {KINDS} kinds of infrastructure templates, and this one isn't followed: name \
                 fewer, or state the capacity by annotations"
            ),
        }
    }
}

/// Chooses the kinds to follow among the served ones: first those in `followed`, oldest first, then the others by name.
/// Returns the kinds beyond the limits, with the reason.
///
/// A kind counts for one of the namespaces that name it: the one with the fewest kinds so far.
pub(super) fn refusals<'a>(
    followed: impl IntoIterator<Item = &'a KindRef>,
    served: impl IntoIterator<Item = &'a KindRef>,
    named: &BTreeMap<KindRef, BTreeSet<ArcStr>>,
) -> BTreeMap<KindRef, Refusal> {
    let (mut places, mut all) = (BTreeMap::<&ArcStr, usize>::new(), 0);
    let mut seen = BTreeSet::new();
    let mut refused = BTreeMap::new();
    for kind in followed.into_iter().chain(served) {
        if !seen.insert(kind) {
            continue;
        }
        // A kind that isn't named any more counts in the total until it is dropped.
        let Some(namespaces) = named.get(kind) else {
            all += 1;
            continue;
        };
        let fewest = namespaces.iter().min_by_key(|namespace| places.get(*namespace).copied().unwrap_or_default());
        let taken = fewest.and_then(|namespace| places.get(namespace)).copied().unwrap_or_default();
        if taken >= KINDS_OF_A_NAMESPACE {
            refused.insert(kind.clone(), Refusal::OfItsNamespaces);
        } else if all >= KINDS {
            refused.insert(kind.clone(), Refusal::InAll);
        } else {
            all += 1;
            if let Some(namespace) = fewest {
                *places.entry(namespace).or_default() += 1;
            }
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> KindRef {
        KindRef { group: "infrastructure.example.com".into(), kind: name.into() }
    }

    fn named(kinds: &[(KindRef, &[&str])]) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        let namespaces = |names: &&[&str]| names.iter().map(|name| ArcStr::from(*name)).collect();
        kinds.iter().map(|(kind, names)| (kind.clone(), namespaces(names))).collect()
    }

    #[test]
    fn a_namespace_takes_its_number_of_places_and_no_others() {
        let mut all: Vec<_> = (0..100).map(|n| (kind(&format!("A{n:03}")), &["hostile"] as &[&str])).collect();
        all.push((kind("Used"), &["team"]));
        let all = named(&all);
        let refused = refusals([], all.keys(), &all);
        assert_eq!(refused.len(), 100 - KINDS_OF_A_NAMESPACE);
        assert!(refused.values().all(|why| *why == Refusal::OfItsNamespaces), "{refused:?}");
        assert!(!refused.contains_key(&kind("Used")));
    }

    #[test]
    fn a_kind_that_others_name_too_counts_for_whom_has_the_fewest() {
        let mut all: Vec<_> = (0..20).map(|n| (kind(&format!("A{n:03}")), &["hostile"] as &[&str])).collect();
        all.push((kind("Shared"), &["hostile", "team"]));
        let all = named(&all);
        assert!(!refusals([], all.keys(), &all).contains_key(&kind("Shared")));
    }

    #[test]
    fn a_followed_template_kind_keeps_its_place_against_new_ones() {
        let namespaces: Vec<_> = (0..20).map(|n| format!("n{n}")).collect();
        let spread = (0..KINDS + 10).map(|n| (kind(&format!("A{n:03}")), namespaces[n % 20].as_str()));
        let mut all: BTreeMap<_, BTreeSet<ArcStr>> =
            spread.map(|(kind, namespace)| (kind, BTreeSet::from([namespace.into()]))).collect();
        all.insert(kind("Z"), BTreeSet::from(["late".into()]));
        let first = refusals([&kind("Z")], all.keys(), &all);
        assert!(!first.contains_key(&kind("Z")));
        assert_eq!(first.len(), 11);
        assert!(first.values().all(|why| *why == Refusal::InAll), "{first:?}");
        let unnamed = kind("Unnamed");
        assert_eq!(refusals([&unnamed], all.keys(), &all).len(), 12, "until it is dropped it takes a place");
    }
}
