//! Tests of the rule for a broken kind, on its own and with a given clock.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rstest::rstest;
use shared_informer::{BrokenScope, ScopeStatus};

use crate::follow::{KindHealth, Outage};

const NONE: BTreeSet<String> = BTreeSet::new();
const MAX: Duration = Duration::from_secs(120);

fn health(synced: bool, broken: Option<(Instant, &str)>) -> KindHealth {
    KindHealth { synced, idle: true, scopes: vec![scope(None, broken)] }
}

fn scope(namespace: Option<&str>, broken: Option<(Instant, &str)>) -> ScopeStatus {
    let broken = broken.map(|(since, reason)| BrokenScope { since, reason: reason.to_owned(), forbidden_since: None });
    ScopeStatus { namespace: namespace.map(str::to_owned), listed: true, lists: false, broken }
}

#[rstest]
#[case::at_once(Duration::ZERO, false)]
#[case::as_long_as_allowed(MAX, false)]
#[case::longer(MAX + Duration::from_secs(1), true)]
fn a_broken_watch_is_a_problem_once_it_is_broken_for_longer_than_allowed(
    #[case] elapsed: Duration,
    #[case] is_problem: bool,
) {
    let since = Instant::now();
    let problem = health(true, Some((since, "connection refused"))).problem(&NONE, MAX, since + elapsed);
    assert_eq!(problem.is_some(), is_problem, "{problem:?}");
    if let Some(problem) = problem {
        assert!(problem.contains("121 s") && problem.contains("(120 s): connection refused"), "{problem}");
    }
}

#[test]
fn a_list_that_was_never_complete_is_a_problem_at_once() {
    let now = Instant::now();
    let reported = |broken| health(false, broken).problem(&NONE, MAX, now).unwrap();
    assert_eq!(reported(Some((now, "forbidden: no"))), "forbidden: no");
    assert_eq!(reported(None), "the first list isn't complete yet");
}

#[test]
fn a_namespace_that_is_left_out_is_no_problem_and_hides_no_other() {
    let now = Instant::now();
    let health = |others| {
        let scopes = vec![scope(Some("one"), Some((now, "forbidden: no"))), scope(Some("two"), others)];
        KindHealth { synced: true, idle: true, scopes }
    };
    let later = now + MAX * 2;
    let left_out = BTreeSet::from(["one".to_owned()]);
    assert_eq!(health(None).problem(&left_out, MAX, later), None);
    assert!(health(None).problem(&NONE, MAX, later).is_some());
    let problem = health(Some((now, "server error 500"))).problem(&left_out, MAX, later).unwrap();
    assert!(problem.ends_with(": server error 500"), "{problem}");
}

#[rstest]
#[case::one_cause(&[Some("refused"), Some("refused")], true)]
#[case::two_causes(&[Some("refused"), Some("server error 500")], false)]
#[case::one_kind_works(&[Some("refused"), None], false)]
#[case::a_single_kind(&[Some("refused")], false)]
fn one_cause_of_all_kinds_is_an_outage(#[case] reasons: &[Option<&'static str>], #[case] is_outage: bool) {
    let now = Instant::now();
    let kind = |reason: Option<&'static str>| ("kind", Ok(health(true, reason.map(|reason| (now, reason)))));
    let kinds: Vec<_> = reasons.iter().copied().map(kind).collect();
    assert_eq!(Outage::of(&kinds, &NONE).is_some(), is_outage);
}

#[test]
fn what_is_forbidden_concerns_each_kind_alone() {
    let now = Instant::now();
    let mut forbidden = health(true, Some((now, "forbidden: no")));
    forbidden.scopes[0].broken.as_mut().unwrap().forbidden_since = Some(now);
    assert_eq!(Outage::of(&[("a", Ok(forbidden.clone())), ("b", Ok(forbidden))], &NONE), None);
}

#[rstest]
#[case::for_a_while(true, MAX, "nothing was heard for 120 s: refused; reads are answered from memory, writes fail")]
#[case::for_too_long(true, MAX + Duration::from_secs(1), "nothing was heard for 121 s, more than --max-staleness")]
#[case::at_the_start(false, MAX, "refused; nothing is served until")]
fn an_outage_says_since_when_and_what_still_works(
    #[case] synced: bool,
    #[case] elapsed: Duration,
    #[case] expected: &str,
) {
    let since = Instant::now();
    let kind = || Ok(health(synced, Some((since, "refused"))));
    let outage = Outage::of(&[("a", kind()), ("b", kind())], &NONE).unwrap();
    let why = outage.check("management", MAX, since + elapsed).reason.unwrap();
    assert!(why.starts_with(expected) && why.ends_with("runbook.md#capiautoscalerprovideroutofsync"), "{why}");
}
