//! Tests of the number of log lines of a first sync.

use std::time::Duration;

use serde_json::json;

use super::objects::*;
use crate::{Change, Index, KindState};
use testkit::CapturedLog;

/// Returns the first lists of groups that share a template with an invalid cpu: each group is served, then has a
/// problem, and its differing Nodes cause a note.
fn lists(groups: usize) -> Vec<Change> {
    let shared = using_template("shared");
    let name = |group: usize| format!("pool-{group:04}");
    let mut changes: Vec<_> = (0..groups).map(|group| deployment(&name(group), 2, ("0", "10"), &shared)).collect();
    changes.extend((0..groups).map(|group| set_of_with(&name(group), &format!("{}-x", name(group)), &shared)));
    for group in 0..groups {
        for zone in ["a", "b"] {
            let node_name = format!("{}-{zone}", name(group));
            changes.push(joined(&format!("MachineSet/{}-x", name(group)), &node_name));
            let labels = json!({"topology.kubernetes.io/zone": zone});
            changes.push(node(&node_name, &json!({"metadata": {"labels": labels}})));
        }
    }
    changes.push(template("shared", &json!({"cpu": "many", "memory": "4Gi"})));
    changes.push(Change::Kind(kind(), KindState::Synced));
    changes.push(deployment("wrong", 1, ("5", "3"), &json!({})));
    changes
}

fn apply(index: &Index, changes: Vec<Change>) {
    for change in changes {
        index.apply(change);
    }
}

#[test]
fn a_first_sync_has_one_line_for_each_kind_and_a_sum() {
    let said = CapturedLog::of(|| {
        let index = Index::new(rules()).in_first_sync();
        apply(&index, lists(1_000));
        index.end_first_sync();
    });
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.len() <= 8, "{} lines: {said}", lines.len());
    let begins = |start: &str| lines.iter().filter(|line| line.contains(start)).count();
    assert_eq!(begins("node groups are served groups=1000"), 1, "{said}");
    assert_eq!(begins("node group is excluded group=MachineDeployment/team-a/wrong"), 1, "{said}");
    assert_eq!(begins("node groups have problems of one kind, the first one: "), 1, "{said}");
    assert_eq!(begins("groups=1000 first=MachineDeployment/team-a/pool-0000 kind=\"capacity\""), 1, "{said}");
    assert_eq!(begins("node groups have notes, the first one: "), 1, "{said}");
    assert!(lines.last().unwrap().contains("node groups are read served=1000 left_out=1"), "{said}");
}

#[test]
fn a_first_sync_names_each_group_of_a_warning_of_few() {
    let wrong = |group: usize| deployment(&format!("wrong-{group:02}"), 1, ("5", "3"), &json!({}));
    let lines = |groups: usize| {
        CapturedLog::of(|| {
            let index = Index::new(rules()).in_first_sync();
            apply(&index, (0..groups).map(wrong).collect());
            index.end_first_sync();
        })
    };
    let few = lines(10);
    for group in (0..10).map(|group| format!("group=MachineDeployment/team-a/wrong-{group:02} ")) {
        assert_eq!(few.matches(&group).count(), 2, "that it is excluded, and why:\n{few}");
    }
    let many = lines(11);
    assert_eq!(many.lines().count(), 3, "{many}");
    assert!(many.contains("node groups are excluded groups=11 first=MachineDeployment/team-a/wrong-00"), "{many}");
}

#[test]
fn after_the_first_sync_each_change_is_a_line() {
    let index = Index::new(rules()).in_first_sync();
    index.end_first_sync();
    let said = CapturedLog::of(|| {
        apply(&index, (0..3).map(|n| deployment(&format!("pool-{n}"), 1, ("0", "3"), &json!({}))).collect());
    });
    assert_eq!(said.matches("node group is served").count(), 3, "{said}");
    assert_eq!(CapturedLog::of(|| index.end_first_sync()), "", "it ends once");
}

#[tokio::test(start_paused = true)]
async fn a_first_sync_that_does_not_end_is_summed_up_once_a_minute() {
    let index = Index::new(rules()).in_first_sync();
    let group = |n: usize| vec![deployment(&format!("pool-{n}"), 1, ("0", "3"), &json!({}))];
    assert_eq!(CapturedLog::of(|| apply(&index, group(0))), "");
    tokio::time::advance(Duration::from_secs(60)).await;
    let said = CapturedLog::of(|| apply(&index, group(1)));
    assert!(said.contains("node groups are served groups=2"), "{said}");
    assert!(said.contains("node groups are being read served=2 left_out=0"), "{said}");
    assert_eq!(CapturedLog::of(|| apply(&index, group(2))), "");
    let said = CapturedLog::of(|| index.end_first_sync());
    assert!(said.contains("node group is served group=MachineDeployment/team-a/pool-2"), "{said}");
    assert!(said.contains("node groups are read served=3"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_changes_without_end_has_few_lines_a_minute_and_a_sum() {
    let index = Index::new(rules());
    let noisy = |n: usize| {
        let annotations = json!({"metadata": {"annotations": {"capacity.cluster-autoscaler.kubernetes.io/cpu": format!("wrong-{n}")}}});
        vec![deployment("noisy", 1, ("0", "3"), &annotations)]
    };
    let quiet = |name: &str| vec![deployment(name, 1, ("0", "3"), &json!({}))];
    let said = CapturedLog::of(|| {
        for n in 0..1_000 {
            apply(&index, noisy(n));
        }
        apply(&index, quiet("other"));
    });
    assert!(said.contains("node group is served group=MachineDeployment/team-a/other"), "{said}");
    let lines = said.lines().filter(|line| line.contains("noisy")).count();
    assert!((2..=40).contains(&lines), "{lines} lines");
    tokio::time::advance(Duration::from_secs(60)).await;
    // Any change of any group is followed by the sums that are due.
    let said = CapturedLog::of(|| apply(&index, quiet("another")));
    assert!(said.contains("of this node group weren't logged group=MachineDeployment/team-a/noisy more=9"), "{said}");
    assert!(said.contains("wrong-999"), "its state is known: {said}");
    let said = CapturedLog::of(|| apply(&index, noisy(1_000)));
    assert!(said.contains("wrong-1000"), "{said}");
}
