//! When a kind counts as broken: by itself, with the clock given.

use std::time::{Duration, Instant};

use rstest::rstest;

use crate::{cluster::follow::Health, informer::Status};

const MAX: Duration = Duration::from_secs(120);

fn health(synced: bool, broken_since: Option<Instant>, reason: Option<&str>) -> Health {
    let status = Status {
        resource: "machines.cluster.x-k8s.io/v1beta2".to_owned(),
        namespaces: "all namespaces".to_owned(),
        selectors: String::new(),
        synced,
        stopped: false,
        reason: reason.map(str::to_owned),
        last_error: None,
        broken_since,
        remaining: None,
        objects: 0,
        undecodable: 0,
        nameless: 0,
        events: crate::informer::EventCounts::default(),
        lists: crate::informer::ListCounts::default(),
        decode_errors: 0,
        handlers: Vec::new(),
        watch_errors: 0,
        handler_panics: 0,
        last_event: None,
        last_list: None,
    };
    Health { synced, status }
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
    let problem = health(true, Some(since), Some("connection refused")).problem(MAX, since + elapsed);
    assert_eq!(problem.is_some(), is_problem, "{problem:?}");
    if let Some(problem) = problem {
        assert!(problem.contains("121 s") && problem.contains("(120 s): connection refused"), "{problem}");
    }
}

#[test]
fn a_watch_that_works_is_no_problem_however_quiet() {
    assert_eq!(health(true, None, None).problem(Duration::ZERO, Instant::now()), None);
}

#[test]
fn a_list_that_was_never_complete_is_a_problem_at_once() {
    let now = Instant::now();
    let told = |reason| health(false, Some(now), reason).problem(MAX, now).unwrap();
    assert_eq!(told(Some("forbidden: no")), "forbidden: no");
    assert_eq!(told(None), "the first list isn't complete yet");
}
