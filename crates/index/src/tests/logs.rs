//! Tests of the log of deletions on hostile objects: the times at which its text is parsed, and how often.

use std::time::{Duration, Instant};

use capi::{
    Context, DELETING, LONGEST_LOG, LogText, MOST_LOGS_OF_NAMESPACE, Meta, ObjectKey, ScalableKind, ScalableResource,
};
use nodegroup::{Rules, Scope, ScopeSpec, SharedLog, writing::GroupVersion};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index};

/// Returns a log with this Machine.
fn log(machine: &str) -> String {
    format!(r#"[{{"ticket":"t","phase":"lowered","machines":{{"{machine}":"uid-of-{machine}"}}}}]"#)
}

/// Returns the parts of an object with this log, and with a status by which its versions differ.
fn logging(text: &str, replicas: i32) -> Value {
    json!({"metadata": {"annotations": {DELETING: text}}, "status": {"replicas": replicas}})
}

fn workers_with(text: &str, replicas: i32) -> Change {
    deployment("workers", 3, ("1", "10"), &logging(text, replicas))
}

/// Returns the stored log of an object.
fn held(index: &Index, group: &str) -> SharedLog {
    let inner = index.inner.read();
    inner.live.groups[&id(group)].versions.shown().unwrap().log.clone().expect("a log")
}

fn index_of(scope: Scope) -> Index {
    Index::new(Rules { scope, ..rules() })
}

#[test]
fn a_text_is_read_once_whatever_else_of_the_object_changes() {
    let index = index_of(Scope::All);
    index.apply_quietly(workers_with(&log("a"), 0));
    let first = held(&index, WORKERS);
    assert!(first.is_read());
    for replicas in 1..10 {
        index.apply_quietly(workers_with(&log("a"), replicas));
        assert!(held(&index, WORKERS).is_shared_with(&first));
    }
    index.apply_quietly(workers_with(&log("b"), 10));
    assert!(!held(&index, WORKERS).is_shared_with(&first) && held(&index, WORKERS).is_read());
}

/// Parsing takes milliseconds, during which every answer would wait.
#[test]
fn a_text_is_read_while_others_hold_the_index() {
    let of_team = |team: &str| {
        let mut more = logging(&log("a"), 0);
        merge(&mut more, &json!({"metadata": {"labels": {"team": team}}}));
        deployment("workers", 3, ("1", "10"), &more)
    };
    let scope = ScopeSpec { labels: vec![("team".into(), "a".into())], ..ScopeSpec::default() };
    let index = index_of(Scope::Specs(vec![scope]));
    index.apply_quietly(of_team("b"));
    let log = held(&index, WORKERS);
    assert!(!log.is_read(), "it is out of scope");
    std::thread::scope(|threads| {
        let holds = index.inner.read();
        let applied = threads.spawn(|| index.apply_quietly(of_team("a")));
        let waits = Instant::now();
        while !log.is_read() && waits.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        let is_read = log.is_read();
        drop(holds);
        applied.join().unwrap();
        assert!(is_read, "nobody else waits for that");
    });
    assert!(held(&index, WORKERS).is_shared_with(&log));
}

#[test]
fn a_written_log_is_not_parsed_again_when_the_watch_delivers_it() {
    let index = index([workers_with("[]", 0)]);
    let log_written = SharedLog::new(log("a").as_str().into());
    let version = GroupVersion { log: Some(log_written.clone()), ..written(&index, WORKERS, 4, "2") };
    index.set_written(&id(WORKERS), version);
    assert!(log_written.is_read(), "before the lock is taken, with which it isn't");
    index.apply_quietly(workers_with(&log("a"), 0));
    assert!(held(&index, WORKERS).is_shared_with(&log_written));
}

#[test]
fn a_copy_on_a_machine_set_shares_what_was_read_and_one_of_its_own_is_left_to_the_finisher() {
    let index = index_of(Scope::All);
    index.apply_quietly(workers_with(&log("a"), 0));
    index.apply_quietly(set_of_with("workers", "workers-1", &logging(&log("a"), 0)));
    let copy = "MachineSet/team-a/workers-1";
    assert!(held(&index, copy).is_shared_with(&held(&index, WORKERS)));
    index.apply_quietly(set_of_with("workers", "workers-1", &logging(&log("b"), 0)));
    assert!(!held(&index, copy).is_read());
}

#[test]
fn the_text_of_an_object_out_of_scope_is_never_read() {
    let index = index_of(Scope::Specs(vec![ScopeSpec::cluster("team-a", "another")]));
    for replicas in 0..5 {
        index.apply_quietly(workers_with(&log("a"), replicas));
        index.refresh();
        let _ = (index.groups(), index.instances(&id(WORKERS)), index.deletions(&id(WORKERS)));
        assert!(!held(&index, WORKERS).is_read());
    }
}

#[test]
fn a_group_that_leaves_the_scope_goes_on_answering_without_its_text_being_read() {
    let label = |value: &str| json!({"metadata": {"labels": {"team": value}}});
    let scope = ScopeSpec { labels: vec![("team".into(), "a".into())], ..ScopeSpec::default() };
    let index = index_of(Scope::Specs(vec![scope]));
    index.apply_quietly(deployment("workers", 3, ("1", "10"), &label("a")));
    index.refresh();
    let mut gone = logging(&log("a"), 0);
    merge(&mut gone, &label("b"));
    index.apply_quietly(deployment("workers", 3, ("1", "10"), &gone));
    assert!(index.instances(&id(WORKERS)).is_some());
    assert!(!held(&index, WORKERS).is_read());
}

#[test]
fn a_text_beyond_what_is_read_is_not_kept_and_the_others_go_on() {
    let machines: Vec<_> = (0..20_000).map(|n| format!(r#""{n}":"0{n}""#)).collect();
    let text = format!(r#"[{{"ticket":"t","phase":"lowered","machines":{{{}}}}}]"#, machines.join(","));
    let index = index_of(Scope::All);
    index.apply_quietly(workers_with(&text, 0));
    index.apply_quietly(deployment("others", 3, ("1", "10"), &logging(&log("a"), 0)));
    index.refresh();
    assert_eq!(held(&index, WORKERS).text(), &LogText::TooLong(text.len()));
    let version = index.deletions(&id(WORKERS)).unwrap().version;
    let error = version.log().unwrap_err().to_string();
    assert!(error.contains(&text.len().to_string()), "{error}");
    assert_eq!(index.scale_view(&id(WORKERS)).unwrap().bounds.max, 10, "it may grow as before");
    let others = index.deletions(&id("MachineDeployment/team-a/others")).unwrap();
    assert_eq!(others.version.log().unwrap().entries().len(), 1);
}

#[test]
fn one_that_is_gone_wakes_those_who_remember_its_deletions() {
    let index = index_of(Scope::All);
    index.apply_quietly(workers_with(&log("a"), 0));
    let _ = index.take_pending_deletes();
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    assert!(index.take_pending_deletes().contains(&id(WORKERS)));
}

#[test]
fn a_text_beyond_the_budget_deletes_nothing_and_says_so() {
    let kind = ScalableKind::MachineDeployment;
    let context = Context::new("cluster.x-k8s.io");
    let decoded = |name: &str, text: &str| {
        let meta = Meta { key: ObjectKey::new(NAMESPACE, name), uid: "u".into(), resource_version: "1".into() };
        ScalableResource::decode(kind, meta, &logging(text, 0), &context).unwrap()
    };
    let full = MOST_LOGS_OF_NAMESPACE / LONGEST_LOG;
    let long = |number: usize| format!("{number:04}{}", "x".repeat(LONGEST_LOG - 4));
    let held: Vec<_> = (0..full).map(|number| decoded(&format!("g{number}"), &long(number))).collect();
    let last = decoded("last", &long(full)).deleting_log.unwrap();
    assert_eq!(last, LogText::OverBudget(LONGEST_LOG));
    let error = SharedLog::new(last).read().unwrap_err().to_string();
    for said in
        [DELETING, &LONGEST_LOG.to_string(), &MOST_LOGS_OF_NAMESPACE.to_string(), "nothing of the group is deleted"]
    {
        assert!(error.contains(said), "{said:?} isn't in {error}");
    }
    drop(held);
    assert!(matches!(decoded("last", &log("a")).deleting_log, Some(LogText::Whole(_))), "the budget is free again");
}
