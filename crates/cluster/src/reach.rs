//! The namespaces of the scope that can't be read, because they were deleted together with their RoleBindings, or a
//! permission is missing. Minimal permissions don't allow reading Namespace objects, so forbidden lists and watches
//! serve as evidence. This file must never mistake an outage, or a permission that is missing everywhere, for a problem
//! of single namespaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use shared_informer::ScopeStatus;

use super::follow::KindHealth;

/// The time after the start during which a 403 may be temporary: new RBAC permissions take a moment to reach every API
/// server.
pub(super) const AT_START: Duration = Duration::from_secs(10);

/// The namespaces of the scope that can't be read.
pub(super) type LeftOutNamespaces = Arc<ArcSwap<BTreeSet<String>>>;

/// The time limits for a namespace that can't be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// True if the start is too recent to give up a namespace that was never read.
    pub(super) starts: bool,
    /// The time for which the objects of a namespace count as current after they can't be read any more.
    pub(super) max_staleness: Duration,
}

/// Returns the namespaces that can't be read, with the reason. `names` are all namespaces of the scope, `before` is
/// the previous result, and `kinds` is the health of the core kinds.
///
/// A namespace is left out once a core kind has been forbidden in it for too long, since the other kinds alone don't
/// define its groups. It comes back once all core kinds are read there. The last namespace is never left out: a right
/// that is missing everywhere isn't a problem of single namespaces.
pub(super) fn out_of_reach(
    names: &BTreeSet<String>,
    before: &BTreeMap<String, String>,
    kinds: &[KindHealth],
    patience: Patience,
    now: Instant,
) -> BTreeMap<String, String> {
    let mut left_out = before.clone();
    // Without any followed kind, nothing is known of the namespaces.
    left_out.retain(|name, _| kinds.is_empty() || !kinds.iter().all(|kind| reads(kind, name)));
    let of_namespace = |name: &String| {
        let scopes = kinds.iter().flat_map(|kind| &kind.scopes).filter(|scope| scope.namespace.as_ref() == Some(name));
        scopes.filter_map(|scope| forbidden_for_long(scope, patience, now)).min().map(str::to_owned)
    };
    let new: Vec<_> = names
        .iter()
        .filter(|name| !left_out.contains_key(*name))
        .filter_map(|name| Some((name.clone(), of_namespace(name)?)))
        .collect();
    if left_out.len() + new.len() < names.len() {
        left_out.extend(new);
    }
    left_out
}

/// Returns true if the index holds all objects of a kind in a namespace.
fn reads(kind: &KindHealth, namespace: &str) -> bool {
    let mut scopes = kind.scopes.iter().filter(|scope| scope.namespace.as_deref() == Some(namespace));
    kind.idle && scopes.all(|scope| scope.listed && !scope.lists && scope.broken.is_none())
}

/// Returns the reason for which a list or watch is forbidden, if it has been for long enough.
fn forbidden_for_long(scope: &ScopeStatus, patience: Patience, now: Instant) -> Option<&str> {
    let broken = scope.broken.as_ref()?;
    let elapsed = now.saturating_duration_since(broken.forbidden_since?);
    let is_over = if scope.listed { elapsed > patience.max_staleness } else { !patience.starts };
    is_over.then_some(broken.reason.as_str())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use shared_informer::BrokenScope;

    const MAX: Duration = Duration::from_secs(120);

    /// Returns the health of a kind: for each namespace, if it is listed, and for how many seconds it has been
    /// forbidden.
    fn kind(began: Instant, scopes: &[(&str, bool, Option<u64>)]) -> KindHealth {
        let scope = |(name, listed, forbidden): &(&str, bool, Option<u64>)| ScopeStatus {
            namespace: Some((*name).to_owned()),
            listed: *listed,
            lists: !*listed,
            broken: forbidden.map(|seconds| BrokenScope {
                since: began,
                reason: format!("forbidden: {name}"),
                forbidden_since: Some(began + Duration::from_secs(1_000 - seconds)),
            }),
        };
        KindHealth { synced: true, idle: true, scopes: scopes.iter().map(scope).collect() }
    }

    fn left_out(before: &[&str], kinds: &[&[(&str, bool, Option<u64>)]], starts: bool) -> Vec<String> {
        let began = Instant::now();
        let kinds: Vec<_> = kinds.iter().map(|scopes| kind(began, scopes)).collect();
        let names = ["a", "b", "c"].map(str::to_owned).into();
        let before = before.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let patience = Patience { starts, max_staleness: MAX };
        let found = out_of_reach(&names, &before, &kinds, patience, began + Duration::from_secs(1_000));
        found.into_keys().collect()
    }

    #[rstest]
    #[case::nothing_is_wrong(&[("a", true, None), ("b", true, None)], &[])]
    #[case::for_a_moment(&[("a", true, Some(120)), ("b", true, None)], &[])]
    #[case::for_too_long(&[("a", true, Some(121)), ("b", true, None)], &["a"])]
    #[case::several(&[("a", true, Some(121)), ("b", true, Some(121)), ("c", true, None)], &["a", "b"])]
    #[case::all(&[("a", true, Some(121)), ("b", true, Some(121)), ("c", true, Some(121))], &[])]
    #[case::never_read(&[("a", false, Some(0)), ("b", true, None)], &["a"])]
    fn a_namespace_that_is_forbidden_for_long_is_left_out(
        #[case] scopes: &[(&str, bool, Option<u64>)],
        #[case] expected: &[&str],
    ) {
        let works = [("a", true, None), ("b", true, None), ("c", true, None)];
        assert_eq!(left_out(&[], &[&works, scopes], false), expected);
        assert_eq!(left_out(&[], &[scopes, &works], false), expected, "whichever kind it is");
    }

    #[test]
    fn at_the_start_a_namespace_that_was_never_read_is_waited_for() {
        assert_eq!(left_out(&[], &[&[("a", false, Some(1_000))]], true), [""; 0]);
    }

    #[test]
    fn kinds_that_are_forbidden_in_one_namespace_each_are_forbidden_everywhere() {
        let kinds: [&[_]; 3] = [&[("a", true, Some(121))], &[("b", true, Some(121))], &[("c", true, Some(121))]];
        assert_eq!(left_out(&[], &kinds, false), [""; 0]);
        assert_eq!(left_out(&[], &kinds[..2], false), ["a", "b"]);
        assert_eq!(left_out(&["a", "b"], &kinds, false), ["a", "b"], "the last one is never left out");
    }

    /// A namespace that is only partly read has incomplete groups.
    #[test]
    fn a_namespace_comes_back_once_every_kind_is_read() {
        let works = [("a", true, None), ("b", true, None)];
        let broken = [("a", true, Some(1)), ("b", true, None)];
        let unlisted = [("a", false, None), ("b", true, None)];
        assert_eq!(left_out(&["a"], &[&works, &broken], false), ["a"]);
        assert_eq!(left_out(&["a"], &[&works, &unlisted], false), ["a"]);
        let mut lists = kind(Instant::now(), &works);
        lists.scopes[0].lists = true;
        assert!(!reads(&lists, "a") && reads(&lists, "b"));
        assert_eq!(left_out(&["a"], &[&works, &works], false), [""; 0]);
        assert_eq!(left_out(&["a"], &[], false), ["a"], "nothing is known yet");
    }

    #[test]
    fn a_namespace_comes_back_once_the_index_has_it() {
        let now = Instant::now();
        let busy = KindHealth { idle: false, ..kind(now, &[("a", true, None)]) };
        let before = BTreeMap::from([("a".to_owned(), String::new())]);
        let names = ["a", "b"].map(str::to_owned).into();
        let patience = Patience { starts: false, max_staleness: MAX };
        assert_eq!(out_of_reach(&names, &before, &[busy], patience, now), before);
    }
}
